"""What `transpect data` says."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.data": {
        "en": "Prepare training data, count it, and look at it as an objective sees it.",
        "zh": "准备训练数据、统计数据，并以训练目标的视角查看数据。",
    },
    "cli.data.prepare": {
        "en": "Encode a corpus into token files, which training reads in place, however large they are.",
        "zh": "把语料编码为词元文件；训练时原地读取，语料再大也无妨。",
    },
    "cli.data.stats": {
        "en": "Count documents, tokens, lengths, duplicates, scripts and bad lines.",
        "zh": "统计文档数、词元数、长度分布、重复、文字种类与坏行。",
    },
    "cli.data.show": {
        "en": "Show rows as training reads them: tokens, labels, masks and segments.",
        "zh": "按训练时读取的样子显示样本：词元、标签、遮盖与分段。",
    },
    "cli.data.what": {
        "en": "A recipe (.yaml), of which data.train is taken, or data: files, folders, globs, token files.",
        "zh": "配方（.yaml，取其中的 data.train），或数据：文件、文件夹、通配符、词元文件目录。",
    },
    "cli.data.recipe": {"en": "The recipe.", "zh": "配方。"},
    "cli.data.tokenizer": {
        "en": "The tokenizer (see `transpect tokenizer encode --help`); without it a recipe's tokenizer.path.",
        "zh": "分词器（见 transpect tokenizer encode --help）；不给时取配方中的 tokenizer.path。",
    },
    "cli.data.out": {
        "en": "The directory to write: absent, empty, or begun by the same command, which is then gone on with.",
        "zh": "输出目录：尚不存在、为空，或由同一命令开始写过（此时接着写）。",
    },
    "cli.data.workers": {
        "en": "Processes that encode. The files are the same for any number.",
        "zh": "编码用的进程数；无论多少，所得文件都相同。",
    },
    "cli.data.shard_tokens": {
        "en": "A file is closed with the document that reaches so many tokens.",
        "zh": "一个文件达到这么多词元后即另起一个。",
    },
    "cli.data.dedup": {
        "en": "Leave duplicates out: exact, or near with the least Jaccard similarity, as in near:0.8.",
        "zh": "去重：exact 为完全相同；near 附最低 Jaccard 相似度，例如 near:0.8。",
    },
    "cli.data.rows": {"en": "How many rows.", "zh": "显示多少行样本。"},
    "cli.data.keys": {
        "en": "Set a key of the recipe, e.g. --data.seq_len 64.",
        "zh": "设置配方中的某一项，例如 --data.seq_len 64。",
    },
    "cli.data.shard": {
        "en": "{name}: {documents} documents, {tokens} tokens",
        "zh": "{name}：{documents} 篇文档，{tokens} 个词元",
    },
    "cli.data.counts": {
        "en": "{documents} documents, {tokens} tokens in {shards} shards",
        "zh": "{documents} 篇文档，{tokens} 个词元，{shards} 个分片",
    },
    "cli.data.prepared": {
        "en": "{path}: {counts} ({resumed} were there already)",
        "zh": "{path}：{counts}（其中 {resumed} 个此前已完成）",
    },
    "cli.data.documents": {"en": "documents", "zh": "文档"},
    "cli.data.characters": {"en": "characters", "zh": "字符"},
    "cli.data.tokens": {"en": "tokens", "zh": "词元"},
    "cli.data.duplicates": {"en": "duplicates", "zh": "重复文档"},
    "cli.data.bad_lines": {"en": "bad lines", "zh": "坏行"},
    "cli.data.longest": {"en": "longest document", "zh": "最长的文档"},
    "cli.data.lengths": {"en": "Documents by length in {unit}", "zh": "按长度（{unit}）统计文档"},
    "cli.data.scripts": {"en": "Letters by script", "zh": "按文字种类统计字母"},
    "cli.data.legend": {
        "en": "green: predicted · grey: read only · red: hidden, → what is to be predicted · │ next document",
        "zh": "绿：要预测 · 灰：只读入 · 红：被遮盖，→ 之后是要预测的词元 · │ 下一篇文档",
    },
    "cli.data.row": {
        "en": "row {number}: {tokens} tokens of {width}, {labels} predicted, {segments} documents",
        "zh": "第 {number} 行：{width} 个位置中有 {tokens} 个词元，预测 {labels} 个，{segments} 篇文档",
    },
    "cli.data.source": {"en": "source", "zh": "源"},
    "cli.data.class": {"en": "class", "zh": "类别"},
}
