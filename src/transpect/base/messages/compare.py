"""Comparisons: the help of the command, its progress, and what stands around its tables."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.compare": {
        "en": "Compare variants of a recipe: equal tokens, several seeds, evaluated beyond the trained length.\n\n"
        "Every variant is built and tried before the first step of training. The directory then holds results.jsonl, "
        "table.md, figure.svg and the runs; the same command goes on where it was stopped.",
        "zh": "对照比较同一配方的多个变体：相同的词元、多个随机种子，并在超出训练长度处评测。\n\n"
        "训练开始之前，先把所有变体构造并试跑一遍。输出目录中有 results.jsonl、table.md、figure.svg 和各次训练；"
        "中断后用同一条命令即可继续。",
    },
    "cli.compare.recipe": {
        "en": "A recipe, with a section `compare` or with --vary; see recipes/extrapolation.yaml.",
        "zh": "配方：含 compare 一节，或配合 --vary 使用；参见 recipes/extrapolation.yaml。",
    },
    "cli.compare.vary": {
        "en": "A dotted key and its values, parted by commas: model.positions=rope,alibi. A value may have options, "
        "rope{{theta: 5e5}}, and a name, far=rope{{theta: 5e5}}. Given more than once, all combinations are compared.",
        "zh": "带点的键与以逗号分隔的取值：model.positions=rope,alibi。取值可带选项（rope{{theta: 5e5}}），"
        "也可命名（far=rope{{theta: 5e5}}）。多次给出时比较所有组合。",
    },
    "cli.compare.seeds": {
        "en": "How many trainings of each variant; 3 unless the recipe says otherwise.",
        "zh": "每个变体训练多少次（随机种子依次加一）；配方未另作规定时为 3。",
    },
    "cli.compare.lengths": {
        "en": "Multiples of the training length to evaluate at; 1,2,4,8 unless the recipe says otherwise.",
        "zh": "在训练长度的哪些倍数处评测；配方未另作规定时为 1,2,4,8。",
    },
    "cli.compare.equal": {
        "en": "parameters: give a variant of another size the d_ff that makes its total equal, within 0.5 %.",
        "zh": "parameters：参数量不同的变体改用使总数一致（差别不超过 0.5%）的 d_ff。",
    },
    "cli.compare.tokens": {
        "en": "Evaluate on at most so many tokens at each length.",
        "zh": "每个长度最多用多少词元评测。",
    },
    "cli.compare.out": {
        "en": "The directory of results; runs/compare-NAME after the recipe when not given.",
        "zh": "结果目录；不给则为 runs/compare-配方名。",
    },
    "cli.compare.jobs": {
        "en": "How many trainings at once, each with its share of the cores.",
        "zh": "同时进行多少个训练，平分各处理器核。",
    },
    "cli.compare.cost": {
        "en": "Also measure time and peak memory of a training step, in fresh processes, after all training; leave the "
        "machine alone meanwhile.",
        "zh": "全部训练结束后，另在全新进程中测量一个训练步的用时与内存峰值；其间请勿使用机器做别的事。",
    },
    "cli.compare.will": {
        "en": "{variants} variants, {trainings} trainings of {steps} steps ({finished} of them done), into {out}",
        "zh": "{variants} 个变体，{trainings} 次训练，每次 {steps} 步（其中 {finished} 次已完成），结果存入 {out}",
    },
    "cli.compare.line": {
        "en": "[{number}/{total}] {name}: loss {losses}; {left} left",
        "zh": "[{number}/{total}] {name}：损失 {losses}；还需 {left}",
    },
    "cli.compare.failed": {
        "en": "[{number}/{total}] {name}: no result; {error}",
        "zh": "[{number}/{total}] {name}：没有结果；{error}",
    },
    "cli.compare.stopped": {
        "en": "Stopped; all is saved in {out}. The same command goes on.",
        "zh": "已停止；一切都保存在 {out} 中。用同一条命令即可继续。",
    },
    "cli.compare.left": {"en": "{names} are in {out}", "zh": "{names} 在 {out} 中"},
    "compare.variant": {"en": "variant", "zh": "变体"},
    "compare.parameters": {"en": "parameters", "zh": "参数量"},
    "compare.all": {
        "en": "Loss over all tokens of a row, nats a token, by row length (training: {part} tokens)",
        "zh": "整行所有词元上的损失（纳特／词元），按行长（训练长度为 {part} 个词元）",
    },
    "compare.last": {
        "en": "Loss over the last {part} tokens of a row alone, nats a token",
        "zh": "仅每行最后 {part} 个词元上的损失（纳特／词元）",
    },
    "compare.time": {
        "en": "Time of a training step on equal tokens, as a multiple of {first}",
        "zh": "相同词元数下一个训练步的用时，以 {first} 为 1",
    },
    "compare.memory": {
        "en": "Peak memory of that step (weights, gradients, activations), as a multiple of {first}",
        "zh": "该步的内存峰值（权重、梯度、激活值），以 {first} 为 1",
    },
    "compare.spread": {
        "en": "mean ± standard deviation of the sample over {seeds} seeds; bold is the lowest mean of a column",
        "zh": "{seeds} 个随机种子的均值 ± 样本标准差；粗体为一列中最低的均值",
    },
    "compare.one_seed": {
        "en": "one seed, so nothing is known of the spread; bold is the lowest of a column",
        "zh": "只有一个随机种子，离散程度未知；粗体为一列中的最低值",
    },
    "compare.trained": {
        "en": "each training read {tokens} tokens in {steps} steps, in rows of {length}, in the same order for every "
        "variant of a seed (digests of the batches: {digests}); measured are the weights after the last step",
        "zh": "每次训练以 {steps} 步读入 {tokens} 个词元，每行 {length} 个；同一种子下各变体所读完全相同，次序也相同"
        "（批次摘要：{digests}）；所测为最后一步之后的权重",
    },
    "compare.rows": {
        "en": "rows (predicted tokens) at each length, of the same text: {counts}",
        "zh": "各长度的行数（被预测的词元数），取自同一段文本：{counts}",
    },
    "compare.d_ff": {
        "en": "{variant}: d_ff {d_ff}, for equal parameters",
        "zh": "{variant}：为使参数量一致，d_ff 取 {d_ff}",
    },
    "compare.cost_note": {
        "en": "time and memory: forward and backward pass, medians of steps, mean ± standard deviation over {rounds} "
        "fresh processes",
        "zh": "用时与内存：前向加反向，取多步的中位数；{rounds} 个全新进程的均值 ± 标准差",
    },
}
