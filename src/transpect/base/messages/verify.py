"""What `transpect verify` says."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.verify": {
        "en": "Measure, on this machine, whether every fast way to compute a model gives what the plain one "
        "gives.\n\n"
        "The reference is attention spelled out in float64, one text at a time, nothing padded, nothing "
        "cached. Kernels, "
        "caches, padding, batches and other programs that open the same files are held against it. The "
        "tolerance is what "
        "rounding can do to this very model. A certificate is left beside the weights; the exit code is 1 "
        "when something "
        "differs by more.",
        "zh": "在本机实测：模型的每一种快速算法，结果是否与最朴素的算法一致。\n\n"
        "参照是用 float64 逐步写出的注意力，一次一条文本，不填充、不缓存。各注意力内核、缓存、填充、成批计算"
        "，以及能打开"
        "同一文件的其他程序，都与它比较。容差是舍入误差对这个模型所能造成的影响。证书写在权重旁边；若有超出，"
        "退出码为 1。",
    },
    "cli.verify.dtype": {
        "en": "In what to compute what is measured: float32 shows small mistakes best; float16 or bfloat16 measure "
        "those.",
        "zh": "被测算法的数据类型：float32 最能发现细小错误；也可实测 float16 或 bfloat16。",
    },
    "cli.verify.peers": {
        "en": "Run transformers, llama.cpp and onnxruntime on the same files, where they are installed (the default).",
        "zh": "对同一文件运行已安装的 transformers、llama.cpp 与 onnxruntime（默认）。",
    },
    "cli.verify.onnx": {
        "en": "ONNX graphs of this model that lie elsewhere: a file, or a directory.",
        "zh": "存放在别处的该模型 ONNX 计算图：文件或目录。",
    },
    "cli.verify.out": {
        "en": "Where the certificate goes; beside the weights when not given, or in the working directory where "
        "those are "
        "not yours.",
        "zh": "证书写到哪里；默认写在权重旁边，若那里不属于你，则写在当前目录。",
    },
    "cli.verify.seed": {"en": "Of the random tokens and the noise.", "zh": "随机词元与噪声的种子。"},
    "verify.way.kernel": {"en": "attention by the kernel `{detail}`", "zh": "注意力内核 {detail}"},
    "verify.way.cached": {"en": "with a cache, {detail} tokens at a time", "zh": "用缓存，每次 {detail} 个词元"},
    "verify.way.cached.1": {"en": "with a cache, token by token", "zh": "用缓存，逐个词元"},
    "verify.way.padded.left": {"en": "with padding on the left", "zh": "左侧填充"},
    "verify.way.padded.right": {"en": "with padding on the right", "zh": "右侧填充"},
    "verify.way.batched.left": {
        "en": "in a batch with longer and shorter neighbours, padded on the left",
        "zh": "与长短不一的文本成批，左侧填充",
    },
    "verify.way.batched.right": {
        "en": "in a batch with longer and shorter neighbours, padded on the right",
        "zh": "与长短不一的文本成批，右侧填充",
    },
    "verify.way.engine": {
        "en": "{detail} tokens written by the engine: batch, left padding and cache together",
        "zh": "引擎续写 {detail} 个词元：成批、左填充与缓存并用",
    },
    "verify.way.peer": {"en": "the same files in {detail}", "zh": "用 {detail} 打开同一文件"},
    "verify.way.peer_cached": {
        "en": "the same files in {detail}, through its cache",
        "zh": "用 {detail} 打开同一文件，经其缓存",
    },
    "verify.lacks.package": {"en": "not installed: pip install {detail}", "zh": "未安装：pip install {detail}"},
    "verify.lacks.onnx": {
        "en": "not installed: pip install 'transpect[onnx]'",
        "zh": "未安装：pip install 'transpect[onnx]'",
    },
    "verify.lacks.directory": {"en": "it opens Hugging Face directories", "zh": "它只打开 Hugging Face 目录"},
    "verify.lacks.gguf": {"en": "it opens GGUF files", "zh": "它只打开 GGUF 文件"},
    "verify.lacks.family": {"en": "this architecture is none of its own", "zh": "它没有这种架构"},
    "verify.lacks.decoder": {
        "en": "only decoders: it wants an encoder's input as text",
        "zh": "只比较解码器：编码器的输入它只收文本",
    },
    "verify.lacks.prefix": {
        "en": "it can't be told which tokens are a prefix",
        "zh": "无法告诉它哪些词元属于前缀",
    },
    "verify.lacks.graph": {
        "en": "no graph here; `transpect convert` writes one",
        "zh": "这里没有计算图；transpect convert 可以写出",
    },
    "verify.lacks.kernel": {"en": "this kernel can't compute this model", "zh": "该内核算不了这个模型"},
    "verify.lacks.device": {"en": "this kernel is made for other devices", "zh": "该内核是为别的设备准备的"},
    "verify.column.way": {"en": "computed", "zh": "算法"},
    "verify.column.delta": {"en": "max |Δ|", "zh": "最大 |Δ|"},
    "verify.column.tolerance": {"en": "tolerance", "zh": "容差"},
    "verify.column.greedy": {"en": "same best token", "zh": "最可能词元相同"},
    "verify.column.verdict": {"en": "verdict", "zh": "结论"},
    "verify.column.seconds": {"en": "seconds", "zh": "秒"},
    "verify.verdict.pass": {"en": "equal", "zh": "一致"},
    "verify.verdict.within_quantisation": {"en": "within quantisation", "zh": "在量化误差内"},
    "verify.verdict.fail": {"en": "DIFFERS", "zh": "不一致"},
    "verify.verdict.skip": {"en": "not measured", "zh": "未测"},
    "verify.greedy.close": {
        "en": "{equal}/{total} (the rest within the tolerance of a tie)",
        "zh": "{equal}/{total}（其余与并列之差在容差内）",
    },
    "verify.greedy.wrong": {
        "en": "{equal}/{total} ({wrong} clearly another)",
        "zh": "{equal}/{total}（{wrong} 个明显不同）",
    },
    "verify.legend": {
        "en": "Reference: attention spelled out in float64, alone, uncached, {n} samples, {tokens} tokens. max |Δ| "
        "is the "
        "largest difference of an output in {dtype}, at the sample that comes nearest to its tolerance; the "
        "tolerance "
        "is what rounding can do there. A place where the two best tokens are nearer than the tolerance may "
        "go either way.",
        "zh": "参照：用 float64 逐步写出的注意力，单条、无缓存，{n} 条样本，共 {tokens} 个词元。最大 |Δ| 是 "
        "{dtype} 输出的最大"
        "差异，取最接近容差的那条样本；容差是舍入误差在该处所能造成的差异。若最可能的两个词元相差不到容差，则"
        "取哪个都算对。",
    },
    "verify.legend.within_quantisation": {
        "en": "Within quantisation: on quantised weights llama.cpp rounds what it multiplies to 8 bits too, so its "
        "tolerance is wide. Gross mistakes would exceed it, small ones can hide below it.",
        "zh": "在量化误差内：对量化权重，llama.cpp 把所乘的数也舍入到 8 位，因此容差很宽。"
        "严重的错误会超出它，细小的错误则可能藏在其中。",
    },
    "verify.result.within_quantisation": {
        "en": "Everything that was measured is equal, or within quantisation where it says so ({seconds} s). The "
        "certificate: {path}",
        "zh": "所测各项全部一致，或（凡注明处）在量化误差内（{seconds} 秒）。证书：{path}",
    },
    "verify.result.pass": {
        "en": "Everything that was measured is equal ({seconds} s). The certificate: {path}",
        "zh": "所测各项全部一致（{seconds} 秒）。证书：{path}",
    },
    "verify.result.fail": {
        "en": "{n} of the rows differ by more than rounding can explain ({seconds} s). The certificate: {path}",
        "zh": "有 {n} 项的差异超出舍入误差所能解释的范围（{seconds} 秒）。证书：{path}",
    },
}
