"""The help pages of the commands: their words, arguments and options."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    # What every page says.
    "cli.usage": {"en": "Usage: ", "zh": "用法："},
    "cli.commands": {"en": "Commands:", "zh": "命令："},
    "cli.arguments": {"en": "Arguments:", "zh": "参数："},
    "cli.options": {"en": "Options:", "zh": "选项："},
    "cli.examples": {"en": "Examples:", "zh": "示例："},
    "cli.default": {"en": " (default: {value})", "zh": "（默认：{value}）"},
    "cli.required": {"en": " (required)", "zh": "（必填）"},
    "cli.help": {"en": "Show this page.", "zh": "显示本页。"},
    "cli.version": {"en": "Show the version.", "zh": "显示版本号。"},
    "cli.language": {
        "en": "`transpect COMMAND --help` says more. TRANSPECT_LANG=en or zh chooses the language, otherwise your "
        "locale does; TRANSPECT_DEBUG=1 shows tracebacks.",
        "zh": "“transpect COMMAND --help” 给出详细说明。语言由 TRANSPECT_LANG=en 或 zh 选定，否则随系统区域设置；"
        "TRANSPECT_DEBUG=1 显示错误的完整回溯。",
    },
    "cli.on_bad_line": {
        "en": "What becomes of a line that can't be read: error names it, skip passes over it and counts.",
        "zh": "遇到无法读取的行时：error 报出该行并停止，skip 跳过并计数。",
    },
    "cli.json": {"en": "Print JSON, for programs.", "zh": "输出 JSON，供程序读取。"},
    "cli.model_path": {
        "en": "A model: a Hugging Face directory, a training run (its best is taken), a .gguf file, pip:PACKAGE, or "
        "OWNER/NAME of a hub (hf: or ms: before it says which).",
        "zh": "模型：Hugging Face 目录、一次训练的输出目录（取其中最好的）、.gguf 文件、pip:软件包，"
        "或模型站上的 OWNER/NAME（可加 hf: 或 ms: 指明站点）。",
    },
    "cli.allow_pickle": {
        "en": "Read pickled weights (pytorch_model.bin) where there are no others. Nothing in them runs.",
        "zh": "没有其他权重时，允许读取 pickle 格式的权重（pytorch_model.bin）；其中的代码不会运行。",
    },
    "cli.device": {
        "en": "Where to compute: auto, cpu, cuda, cuda:1 or mps.",
        "zh": "计算设备：auto、cpu、cuda、cuda:1 或 mps。",
    },
    # demo
    "cli.demo.out": {
        "en": "Where the run is left; a run that is there already is gone on from, or only looked at if it is done.",
        "zh": "训练结果的存放目录；若其中已有训练，则接着训练，已完成则直接查看。",
    },
    "cli.demo.text": {
        "en": "The text to walk through the network, the beginning of a story.",
        "zh": "带着走过网络的那句话，须是某个故事的开头。",
    },
    # convert
    "cli.convert.target": {
        "en": "What to write: a directory, a .gguf file or a .onnx file. What stands there is replaced only if it is a "
        "checkpoint, and only by a complete one.",
        "zh": "输出位置：目录、.gguf 文件或 .onnx 文件。已有的内容只有是模型时才会被替换，且只替换为完整的结果。",
    },
    "cli.convert.to": {
        "en": "hf, gguf or onnx; by the name of DST when not given.",
        "zh": "格式：hf、gguf 或 onnx；不给则由 DST 的名称决定。",
    },
    "cli.convert.dtype": {
        "en": "What the weights become. hf: float32, bfloat16, float16 (as they are when not given); gguf: f32 "
        "(when not given), f16, q8_0; onnx: float32 (when not given), float16.",
        "zh": "权重的数据类型。hf：float32、bfloat16、float16（不给则不变）；gguf：f32（默认）、f16、q8_0；"
        "onnx：float32（默认）、float16。",
    },
    "cli.convert.done": {
        "en": "{path}: a model of type {family}, {parameters} parameters, {size} MB.",
        "zh": "{path}：{family} 类模型，{parameters} 个参数，{size} MB。",
    },
    # model
    "cli.model.show.model": {
        "en": "The name of a preset (see `transpect model list`), or a model: a directory, a .gguf file, pip:PACKAGE, "
        "OWNER/NAME of a hub.",
        "zh": "预设模型的名称（见 transpect model list），或一个模型：目录、.gguf 文件、pip:软件包、"
        "模型站上的 OWNER/NAME。",
    },
    "cli.model.show.batch": {"en": "B of the shapes.", "zh": "形状中的批大小 B。"},
    "cli.model.show.length": {
        "en": "T of the shapes; 16, or the context if that is shorter.",
        "zh": "形状中的长度 T；默认 16，上下文更短时取上下文长度。",
    },
    "cli.model.show.source_length": {
        "en": "S of the shapes, for an encoder–decoder; T when not given.",
        "zh": "形状中的源长度 S（编码器–解码器）；不给则与 T 相同。",
    },
    "cli.model.show.config": {
        "en": "Print the configuration alone, as YAML.",
        "zh": "只打印配置（YAML）。",
    },
    "cli.model.show.keys": {
        "en": "Set any key of the model, in full or by its short name: --decoder.ffn.d_ff 512, --n_layers 2.",
        "zh": "设置模型配置中的任何一项，可用全名或短名：--decoder.ffn.d_ff 512、--n_layers 2。",
    },
    # tokenizer
    "cli.tokenizer.kind": {
        "en": "char, bpe, byte-bpe, wordpiece or unigram.",
        "zh": "char、bpe、byte-bpe、wordpiece 或 unigram。",
    },
    "cli.tokenizer.vocab_size": {
        "en": "How many tokens at most, special ones included; only char can do without.",
        "zh": "词表大小上限，含特殊词元；只有 char 可以不给。",
    },
    "cli.tokenizer.keys": {
        "en": "Set an option of the kind, e.g. --byte_fallback true.",
        "zh": "设置该类型自己的选项，例如 --byte_fallback true。",
    },
    "cli.tokenizer.out": {
        "en": "The directory to save in: absent, empty, or with an older tokenizer and nothing else.",
        "zh": "保存目录：尚不存在、为空，或只含旧的分词器。",
    },
    "cli.tokenizer.files": {
        "en": "Data to train on: text files, folders of them, JSONL (field `text`), CSV, TSV or Parquet.",
        "zh": "训练数据：文本文件、文件夹、JSONL（text 字段）、CSV、TSV 或 Parquet。",
    },
    "cli.tokenizer.path": {
        "en": "A directory that holds a tokenizer, a tokenizer's own file, a training run, or a model's name (see "
        "`transpect generate --help`).",
        "zh": "含分词器的目录、分词器文件本身、一次训练的输出目录，或模型的名称（见 transpect generate --help）。",
    },
    "cli.tokenizer.text": {
        "en": "The text; - or nothing reads it from standard input.",
        "zh": "文本；用 - 或留空则从标准输入读取。",
    },
    "cli.tokenizer.ids": {
        "en": "Token ids, parted by spaces or commas; - or nothing reads them from standard input.",
        "zh": "词元编号，以空格或逗号分隔；用 - 或留空则从标准输入读取。",
    },
    "cli.tokenizer.special": {
        "en": "Add the special tokens that the model expects around a text.",
        "zh": "在文本两端加上模型所需的特殊词元。",
    },
    # train
    "cli.train.recipe": {"en": "A recipe: a YAML file, see recipes/.", "zh": "配方：YAML 文件，见 recipes/。"},
    "cli.train.out": {"en": "The directory of the run.", "zh": "本次训练的输出目录。"},
    "cli.train.data": {
        "en": "Train on this instead of the recipe's data: a text file, a folder, JSONL, TSV.",
        "zh": "用它代替配方中的训练数据：文本文件、文件夹、JSONL 或 TSV。",
    },
    "cli.train.resume": {
        "en": "auto goes on where the run in --out was left, never starts anew, a directory goes on from that run.",
        "zh": "auto 从 --out 中断处继续，never 从头开始，给出目录则从那次训练继续。",
    },
    "cli.train.find_lr": {
        "en": "Train nothing: make a hundred updates at growing rates, which are thrown away, and suggest a learning "
        "rate; leaves find-lr.svg and find-lr.jsonl in --out.",
        "zh": "不训练：用逐步增大的学习率做一百次试验性更新（随后丢弃），给出建议的学习率；"
        "在 --out 中留下 find-lr.svg 与 find-lr.jsonl。",
    },
    "cli.train.return_memory": {
        "en": "Give freed memory back to the system at once, as glibc does by itself; by default it is kept for the "
        "next step.",
        "zh": "释放的内存立即还给系统（glibc 自身的做法）；默认留给下一步使用。",
    },
    "cli.train.keys": {
        "en": "Set any key of the recipe: --model.n_layers 2, --train.max_steps 24; --KEY=VALUE works too.",
        "zh": "设置配方中的任何一项：--model.n_layers 2、--train.max_steps 24；也可写作 --KEY=VALUE。",
    },
    # eval
    "cli.eval.data": {
        "en": "The text: a file, a folder, JSONL (field `text`) or TSV; without it, what a run was evaluated on.",
        "zh": "评测文本：文件、文件夹、JSONL（text 字段）或 TSV；不给则用该次训练自己的评测数据。",
    },
    "cli.eval.generate": {
        "en": "Also let an encoder–decoder answer each source, greedily and by beam search (4 beams, or as the options "
        "below say), and compare with the targets: BLEU and chrF by sacrebleu.",
        "zh": "另让编码器–解码器回答每条源文本：贪心与束搜索（4 束，或按下列选项），与目标比较，"
        "用 sacrebleu 计算 BLEU 与 chrF。",
    },
    "cli.eval.tokenize": {
        "en": "How BLEU parts the texts into words: zh, 13a, char, ja-mecab, …; by the script of the targets when not "
        "given.",
        "zh": "BLEU 的分词方式：zh、13a、char、ja-mecab 等；不给则按目标文本的文字决定。",
    },
    "cli.eval.batch_size": {
        "en": "How many rows at once: 16, or, read with a memory, 1.",
        "zh": "一次处理多少行：默认 16；带记忆时默认 1。",
    },
    "cli.eval.memory": {
        "en": "Read in segments with a memory of so many tokens before each.",
        "zh": "分段读取，每段之前记住这么多词元。",
    },
}
