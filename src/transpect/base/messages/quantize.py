"""``transpect quantize``: its options and its table."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.quantize": {
        "en": "Put a model's weights into few bits, say what that changes on a text, and save it.\n\nThe linear layers "
        "take --format; the head and the token table are in 8 bits unless --keep names them.",
        "zh": "用更少的比特存放模型的权重，报告由此在文本上带来的变化，并可保存结果。\n\n线性层采用 --format；"
        "输出头与词元表用 8 位，除非由 --keep 另行指定。",
    },
    "cli.quantize.format": {
        "en": "int8, int8-group, int4, int4-64, int4-zero, int4-zero-64, q8_0, q4_0, q4_1, q4_k, q6_k; int4-mixed and "
        "int4-zero-mixed have values and the ends of feed-forwards in 8 bits.",
        "zh": "格式：int8、int8-group、int4、int4-64、int4-zero、int4-zero-64、q8_0、q4_0、q4_1、q4_k、q6_k；"
        "int4-mixed 与 int4-zero-mixed 将 value 与前馈末层放在 8 位。",
    },
    "cli.quantize.method": {
        "en": "round: each weight to the nearest value. On the text of --calibration: gptq: later columns make up "
        "for the errors of earlier ones; awq: columns that meet large inputs are scaled up first; awq-gptq: both.",
        "zh": "round：每个权重取最近的值。以下方法读取 --calibration 的文本：gptq 由后面的列弥补前面各列的误差；"
        "awq 在取整前放大输入较大的列；awq-gptq 两者并用。",
    },
    "cli.quantize.keep": {
        "en": "Another format for parts of the model, by name, `full` for none: --keep token=int8 --keep down=full. "
        "Can be given several times.",
        "zh": "按名称为模型的某些部分指定其他格式，full 表示不变：--keep token=int8 --keep down=full。可多次给出。",
    },
    "cli.quantize.calibration": {
        "en": "A text that gptq and awq read; not the one to evaluate on.",
        "zh": "gptq 与 awq 读取的校准文本；不应与评测文本相同。",
    },
    "cli.quantize.written": {"en": "saved as {path}", "zh": "已保存到 {path}"},
    "cli.quantize.eval": {
        "en": "The text on which both models are compared; none needs --out.",
        "zh": "用来比较前后两个模型的文本；省略时须给出 --out。",
    },
    "cli.quantize.tokens": {
        "en": "How many tokens of each text are read, from its beginning.",
        "zh": "每个文本从开头起读取多少个词元。",
    },
    "cli.quantize.length": {
        "en": "Tokens of a window, or the context if that is shorter.",
        "zh": "每个窗口的词元数；上下文更短时取上下文长度。",
    },
    "cli.quantize.out": {
        "en": "Where to save the model: a directory, which transformers and the commands here open (laid out as "
        "by compressed-tensors, its token table in full), or a .gguf file, for q8_0, q4_0, q4_1, q4_k, q6_k and int4.",
        "zh": "模型的保存位置：目录（compressed-tensors 布局，transformers 与本工具均可打开，其中词元表不压缩），"
        "或 .gguf 文件（可存 q8_0、q4_0、q4_1、q4_k、q6_k 与 int4）。",
    },
    "cli.quantize.calibrating": {"en": "layers", "zh": "层"},
    "cli.quantize.comparing": {"en": "windows", "zh": "窗口"},
    "cli.quantize.perplexity_before": {"en": "perplexity before", "zh": "原困惑度"},
    "cli.quantize.perplexity_before.unit": {"en": "exp(loss) in float32", "zh": "exp(损失)，float32"},
    "cli.quantize.perplexity": {"en": "perplexity after", "zh": "现困惑度"},
    "cli.quantize.perplexity.unit": {"en": "exp(loss)", "zh": "exp(损失)"},
    "cli.quantize.change": {"en": "change", "zh": "变化"},
    "cli.quantize.change.unit": {"en": "of perplexity", "zh": "困惑度的变化"},
    "cli.quantize.kl": {"en": "KL(before ‖ after)", "zh": "KL(原 ‖ 现)"},
    "cli.quantize.kl.unit": {"en": "nats per token", "zh": "纳特／词元"},
    "cli.quantize.top1": {"en": "top-1 agreement", "zh": "首选一致率"},
    "cli.quantize.top1.unit": {"en": "of tokens", "zh": "占词元的比例"},
    "cli.quantize.bits_per_weight": {"en": "bits per weight", "zh": "每权重比特数"},
    "cli.quantize.bits_per_weight.unit": {
        "en": "of the whole model, scales and what stays in float32 included",
        "zh": "整个模型，含缩放系数与保持 float32 的部分",
    },
    "cli.quantize.n_tokens": {"en": "tokens", "zh": "词元数"},
    "cli.quantize.n_tokens.unit": {"en": "predicted", "zh": "被预测的词元"},
}
