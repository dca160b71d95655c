"""What `transpect bench` says of itself."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.bench": {
        "en": "Measure transpect beside other programs, in one run on this machine.",
        "zh": "在本机同一次运行中，把 transpect 与其他程序并排实测。",
    },
    "cli.bench.decode": {
        "en": "Measure how many tokens a second are written, beside other programs with the same weights.\n\n"
        "Each program works in a process of its own, all with the same threads, prompts and bits, and they take "
        "turns. A ratio is ours over theirs in one round; the table gives the median with the lowest and the highest. "
        "The last line sums up; the exit code is 1 when a ratio is under its bar.",
        "zh": "实测每秒写出多少词元，与使用同样权重的其他程序对比。\n\n"
        "每个程序在各自的进程中运行，线程数、提示与位数都相同，轮流进行。比值取同一轮中我们与对方之比；"
        "表中给出中位数及最低、最高值。最后一行为总结；若有比值低于标准，退出码为 1。",
    },
    "cli.bench.prefill": {
        "en": "Measure how many tokens of a prompt a second are read, beside other programs with the same weights.",
        "zh": "实测每秒读入提示中的多少词元，与使用同样权重的其他程序对比。",
    },
    "cli.bench.tokens": {"en": "How long the prompt is.", "zh": "提示有多少词元。"},
    "cli.bench.load": {
        "en": "Measure how long a model takes to open, and to read its first token, beside other programs.\n\n"
        "Each opens the same file in the same format, again in every round; the file is in the system's cache. "
        "A ratio under 1 means that ours is sooner ready.",
        "zh": "实测打开模型、以及到读出第一个词元需要多久，与其他程序对比。\n\n"
        "各程序每一轮都以同样的格式重新打开同一文件；文件已在系统缓存中。比值小于 1 表示我们更快就绪。",
    },
    "cli.bench.train": {
        "en": "Measure how many tokens a second a small GPT-2 is trained on, and in how much memory, beside other "
        "programs.",
        "zh": "实测训练一个小型 GPT-2 每秒处理多少词元、占用多少内存，与其他程序对比。",
    },
    "cli.bench.dtypes": {
        "en": "In which dtypes passes run: float32, bfloat16.",
        "zh": "前向与反向用哪些数据类型：float32、bfloat16。",
    },
    "cli.bench.steps": {"en": "Updates in each turn.", "zh": "每轮更新多少步。"},
    "cli.bench.encode": {
        "en": "Measure how many sentences a second an encoder such as BERT turns into vectors, beside other programs "
        "with the same weights. 32 sentences of different lengths are one batch.",
        "zh": "实测 BERT 之类的编码器每秒把多少个句子变成向量，与使用同样权重的其他程序对比。"
        "32 个长短不一的句子为一批。",
    },
    "cli.bench.translate": {
        "en": "Measure how many tokens a second an encoder-decoder answers with, greedily and by beam search, beside "
        "other programs with the same weights.\n\n"
        "The model is one of recipes/translate-ui.yaml; others know it as M2M-100 of its sizes. Every answer to one of "
        "32 sentences has the same number of tokens.",
        "zh": "实测编码器–解码器以贪心与束搜索每秒写出多少词元，与使用同样权重的其他程序对比。\n\n"
        "模型为 recipes/translate-ui.yaml 所训；其他程序把它当作同样大小的 M2M-100。"
        "32 个句子的每个回答词元数相同。",
    },
    "cli.bench.beams": {
        "en": "How many beams, parted by commas; 1 is greedy.",
        "zh": "束宽，以逗号分隔；1 为贪心。",
    },
    "cli.bench.serve": {
        "en": "Measure how many tokens a second a server writes for some clients at a time, and how long they wait for "
        "the first token and between two, beside other servers of the same weights.\n\n"
        "Every server is started anew and asked in the words of OpenAI's API, for streams of the same length. Below 1 "
        "a ratio of waiting is in our favour.",
        "zh": "实测服务端同时面对若干客户端时每秒写出多少词元，以及客户端等首个词元与相邻词元各多久，"
        "与使用同样权重的其他服务端对比。\n\n"
        "每个服务端都新启动，用 OpenAI 的接口请求同样长的流式回答。等待时间的比值小于 1 表示我们更快。",
    },
    "cli.bench.clients": {
        "en": "How many clients at a time, parted by commas.",
        "zh": "同时有多少客户端，以逗号分隔。",
    },
    "cli.bench.each": {
        "en": "How many requests each client makes, one after another.",
        "zh": "每个客户端先后发多少个请求。",
    },
    "cli.bench.attention": {
        "en": "Measure what each way to compute attention costs over length, beside torch's with a mask.",
        "zh": "实测各种注意力算法随长度的开销，与 torch 带掩码的算法对比。",
    },
    "cli.bench.quick": {
        "en": "Three rounds of one call, and no table of all ways: within five minutes.",
        "zh": "三轮、每轮一次调用，不列所有算法的表：五分钟之内。",
    },
    "cli.bench.against": {
        "en": "Whom to measure beside, parted by commas. llama.cpp and ctranslate2 get environments of their own in "
        "your cache, made on the first run.",
        "zh": "与谁对比，以逗号分隔。llama.cpp 与 ctranslate2 首次运行时会在用户缓存目录中建立各自的环境。",
    },
    "cli.bench.rounds": {"en": "How many turns each takes.", "zh": "每个程序轮几次。"},
    "cli.bench.threads": {
        "en": "How many threads each computes with; all cores that are allowed when not given.",
        "zh": "每个程序用多少线程；不给则用允许的全部处理器核。",
    },
    "cli.bench.peer_python": {
        "en": "An interpreter that has a peer installed, to be taken instead of making an environment.",
        "zh": "已装好某个对比程序的解释器，用它而不另建环境。",
    },
    "cli.bench.out": {"en": "Also write every value of every round, as JSON.", "zh": "另把每一轮的每个数值写成 JSON。"},
    "cli.bench.model": {"en": "A model, as for every command.", "zh": "模型，写法与各命令相同。"},
    "cli.bench.formats": {
        "en": "Number formats of the weights, parted by commas.",
        "zh": "权重的数值格式，以逗号分隔。",
    },
    "cli.bench.batch": {
        "en": "How many sequences at a time, parted by commas.",
        "zh": "一次解码多少条序列，以逗号分隔。",
    },
    "cli.bench.new": {"en": "Tokens that each prompt is continued by.", "zh": "每条提示续写多少词元。"},
}
