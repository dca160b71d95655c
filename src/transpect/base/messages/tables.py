"""What the commands say around their tables and results."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.model.column.name": {"en": "name", "zh": "名称"},
    "cli.model.column.kind": {"en": "kind", "zh": "类型"},
    "cli.model.column.layers": {"en": "layers", "zh": "层数"},
    "cli.model.column.d_model": {"en": "d_model", "zh": "d_model 宽度"},
    "cli.model.column.heads": {"en": "heads", "zh": "注意力头"},
    "cli.model.column.vocabulary": {"en": "vocabulary", "zh": "词表"},
    "cli.model.column.context": {"en": "context", "zh": "上下文"},
    "cli.model.column.parameters": {"en": "parameters", "zh": "参数量"},
    "cli.model.column.source": {"en": "source", "zh": "出处"},
    "cli.model.column.part": {"en": "part", "zh": "部分"},
    "cli.model.column.per_layer": {"en": "per layer", "zh": "每层"},
    "cli.model.column.share": {"en": "share", "zh": "占比"},
    "cli.model.column.step": {"en": "step", "zh": "步骤"},
    "cli.model.column.shape": {"en": "shape", "zh": "形状"},
    "cli.model.column.made_by": {"en": "made by", "zh": "由谁产生"},
    "cli.model.total": {"en": "total", "zh": "合计"},
    "cli.model.tied": {"en": "tied to the token table", "zh": "与词元表共享权重"},
    "cli.model.kernel": {
        "en": "attention_weights are shown as the kernel `naive` writes them; `{kernel}` computes the same without "
        "writing them down.",
        "zh": "attention_weights 按 naive 内核写出的样子列出；{kernel} 计算相同的结果，但不把它们写出来。",
    },
    "cli.model.axes": {
        "en": "The axes of one forward pass: {axes}",
        "zh": "一次前向计算的各轴大小：{axes}",
    },
    "cli.tokenizer.saved": {
        "en": "{path}: {kind}, {size} tokens, {ratio} characters a token on what it was trained on",
        "zh": "{path}：{kind}，{size} 个词元；在训练文本上平均每个词元 {ratio} 个字符",
    },
    "cli.eval.loss": {"en": "loss", "zh": "损失"},
    "cli.eval.loss.unit": {"en": "nats per token", "zh": "纳特／词元"},
    "cli.eval.perplexity": {"en": "perplexity", "zh": "困惑度"},
    "cli.eval.perplexity.unit": {"en": "exp(loss)", "zh": "exp(损失)"},
    "cli.eval.bits_per_character": {"en": "bits per character", "zh": "每字符比特数"},
    "cli.eval.bits_per_character.unit": {"en": "bits, the ends of texts paid for", "zh": "比特（含文本结尾的代价）"},
    "cli.eval.n_tokens": {"en": "tokens", "zh": "词元数"},
    "cli.eval.n_tokens.unit": {"en": "predicted, ends included", "zh": "被预测的词元，含结尾"},
    "cli.eval.n_characters": {"en": "characters", "zh": "字符数"},
    "cli.eval.n_characters.unit": {"en": "of text", "zh": "文本字符"},
    "cli.eval.n_documents": {"en": "texts", "zh": "文本数"},
    "cli.eval.n_documents.unit": {"en": "in the data", "zh": "数据中的文本"},
    "cli.eval.column.decoding": {"en": "decoding", "zh": "解码"},
    "cli.eval.column.empty": {"en": "empty outputs", "zh": "空输出"},
    "cli.eval.greedy": {"en": "greedy", "zh": "贪心"},
    "cli.eval.progress": {"en": "translations", "zh": "译文"},
}
