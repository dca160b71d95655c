"""The help of the command line: one line for each command."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.app": {
        "en": "One readable Transformer core: trained, loaded, decoded and looked into.",
        "zh": "一个读得懂的 Transformer 内核：训练、加载、解码，并看清其中的每一步。",
    },
    "cli.demo": {
        "en": "Train a small Chinese GPT in minutes and walk one sentence through it, up to the next token.",
        "zh": "几分钟内训练一个小型中文 GPT，再带一句话走过整个网络，直到下一个词元。",
    },
    "cli.model": {
        "en": "List the model presets and show how one is built.",
        "zh": "列出预设模型，并展示其构造。",
    },
    "cli.model.list": {
        "en": "List the presets, with their papers and parameter counts.",
        "zh": "列出预设模型，附论文出处与参数量。",
    },
    "cli.model.show": {
        "en": "Print a preset's resolved configuration, its parameters by part, and the shape at every step.",
        "zh": "打印预设模型的完整配置、各部分参数量，以及每一步的张量形状。",
    },
    "cli.tokenizer": {
        "en": "Train tokenizers and use them.",
        "zh": "训练并使用分词器。",
    },
    "cli.tokenizer.train": {
        "en": "Train a tokenizer on text files and save it as tokenizer.json.",
        "zh": "用文本文件训练分词器，保存为 tokenizer.json。",
    },
    "cli.tokenizer.encode": {
        "en": "Turn text into token ids.",
        "zh": "把文本编码为词元编号。",
    },
    "cli.tokenizer.decode": {
        "en": "Turn token ids back into text.",
        "zh": "把词元编号解码为文本。",
    },
    "cli.train": {
        "en": "Train a model from a recipe; any key of the recipe can be overridden by a dotted option.",
        "zh": "按配方训练模型；配方中的任何一项都可以用带点的选项覆盖。",
    },
    "cli.generate": {
        "en": "Continue a text with a trained model.",
        "zh": "用训练好的模型续写文本。",
    },
    "cli.convert": {
        "en": "Make a checkpoint of one kind into another: a Hugging Face directory, GGUF, ONNX.",
        "zh": "转换模型的存储格式：Hugging Face 目录、GGUF、ONNX。",
    },
    "cli.eval": {
        "en": "Measure a model on a text: loss, perplexity and bits per character.",
        "zh": "在文本上评测模型：损失、困惑度与每字符比特数。",
    },
}
