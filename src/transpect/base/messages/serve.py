"""``transpect serve``: its options and what it says when it starts."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.serve": {
        "en": "Serve models over HTTP in the words of OpenAI's API, with a chat page at /.\n\n"
        "SIGTERM or Ctrl-C ends it in good order, SIGHUP reads models, keys and --config again while it runs.",
        "zh": "以 OpenAI API 的形式通过 HTTP 提供模型服务，/ 处有聊天页面。\n\n"
        "SIGTERM 或 Ctrl-C 使其有序退出；SIGHUP 使其在运行中重新读取模型、密钥与 --config。",
    },
    "cli.serve.models": {
        "en": "What to serve; NAME is what requests call it, by default the last part of its path.",
        "zh": "要提供的模型；NAME 是请求中使用的名称，默认为路径的最后一段。",
    },
    "cli.serve.config": {
        "en": "A YAML file that says it all: models, host, port, api_keys, limits.",
        "zh": "包含全部设置的 YAML 文件：models、host、port、api_keys、limits。",
    },
    "cli.serve.host": {
        "en": "Where to listen; 127.0.0.1 by default, and any other address only with API keys.",
        "zh": "监听地址；默认 127.0.0.1，其他地址必须配合 API 密钥使用。",
    },
    "cli.serve.port": {
        "en": "Which port; 8000 by default, 0 for any free one.",
        "zh": "端口；默认 8000，0 表示任意空闲端口。",
    },
    "cli.serve.api_keys": {
        "en": "A YAML file of keys; TRANSPECT_API_KEYS in the environment adds more.",
        "zh": "密钥的 YAML 文件；环境变量 TRANSPECT_API_KEYS 可补充更多密钥。",
    },
    "cli.serve.tensor_parallel": {
        "en": "Let so many processes share out the matrices of each model, by heads and inner features.",
        "zh": "让这么多个进程按注意力头和前馈维度分担每个模型的矩阵。",
    },
    "cli.serve.replicas": {
        "en": "How many processes answer, behind the one that listens; 1 by default. One that dies is started again.",
        "zh": "监听进程之后有多少个进程应答；默认 1。某个进程退出后会重新启动。",
    },
    "cli.serve.alias": {
        "en": "Another name for a model. Can be given several times.",
        "zh": "模型的另一个名称。可多次给出。",
    },
    "cli.serve.chat_template": {
        "en": "The name of one of the tokenizer's chat templates, or a file of Jinja.",
        "zh": "分词器中某个聊天模板的名称，或一个 Jinja 文件。",
    },
    "cli.serve.log_prompts": {
        "en": "Write prompts to the log, which holds none otherwise.",
        "zh": "把提示写入日志；否则日志中没有任何提示。",
    },
    "cli.serve.dtype": {
        "en": "What the weights become, such as float32 or bfloat16; by default as they are stored.",
        "zh": "权重转换成的类型，如 float32 或 bfloat16；默认与存储时相同。",
    },
    "cli.serve.keys": {
        "en": "A bound of requests (--limits.n 4) or the size of the engine (--engine.max_rows 16): docs/serving.md.",
        "zh": "请求的上限（--limits.n 4）或引擎的规模（--engine.max_rows 16）：docs/serving.zh-CN.md。",
    },
    "cli.serve.open": {
        "en": "WARNING: listening on {host}: other machines can connect. Requests need an API key, but HTTP is not "
        "encrypted: put a proxy with TLS before it.",
        "zh": "警告：正在监听 {host}，其他机器可以连接。请求需要 API 密钥，但 HTTP 未加密：请在前面放置带 TLS 的代理。",
    },
    "cli.serve.listening": {
        "en": "Listening on {address}. Open it in a browser to chat; Ctrl-C ends it.",
        "zh": "正在监听 {address}。用浏览器打开即可聊天；按 Ctrl-C 结束。",
    },
}
