"""The command plan: its help, and the words of its tables."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "cli.plan": {
        "en": "Tell before a training what it will need: parameters, operations, memory, time and cost.\n\n"
        "Without --gpus, of this machine, which is measured for seconds; with it, how so many GPUs share the work: "
        "micro-batch, accumulation, checkpointing, data, tensor and pipeline parallel. Nothing is trained.",
        "zh": "训练之前预先估算所需：参数量、计算量、内存、时间与费用。\n\n"
        "不给 --gpus 时针对本机（花几秒实测）；给出时说明这些 GPU 如何分担："
        "微批大小、梯度累积、重算，以及数据、张量与流水线并行。"
        "不做任何训练。",
    },
    "cli.plan.gpus": {
        "en": "How many GPUs of which kind: 8xA100, 1024xH100.",
        "zh": "GPU 的数量与型号：8xA100、1024xH100。",
    },
    "cli.plan.memory": {
        "en": "What a device holds, over what it is known for: 24GB, 512MiB.",
        "zh": "每个设备的内存，代替其标称值：24GB、512MiB。",
    },
    "cli.plan.hours": {
        "en": "How long it may take; tells how many steps that allows.",
        "zh": "允许的时长（小时）；给出其间可完成的步数。",
    },
    "cli.plan.price": {
        "en": "US dollars an hour and device, over the list price.",
        "zh": "每设备每小时的美元价格，代替标价。",
    },
    "plan.model": {
        "en": "{parameters} parameters; {flops} FLOPs an update; {tokens} tokens an update; {steps} updates",
        "zh": "{parameters} 个参数；每次更新 {flops} 次浮点运算、{tokens} 个词元；共 {steps} 次更新",
    },
    "plan.on": {"en": "on {devices} × {hardware}, {memory} each", "zh": "设备：{devices} × {hardware}，每个 {memory}"},
    "plan.memory": {"en": "Memory of a device, peak in: {moment}", "zh": "每个设备的内存（峰值在 {moment}）"},
    "plan.base": {"en": "the process itself", "zh": "进程自身"},
    "plan.weights": {"en": "weights", "zh": "权重"},
    "plan.gradients": {"en": "gradients", "zh": "梯度"},
    "plan.optimizer": {"en": "optimizer state", "zh": "优化器状态"},
    "plan.activations": {"en": "activations", "zh": "激活值"},
    "plan.loss": {"en": "logits and loss", "zh": "logits 与损失"},
    "plan.passing": {"en": "at work for a moment", "zh": "临时占用"},
    "plan.holes": {"en": "held by the allocator", "zh": "分配器保留"},
    "plan.total": {"en": "total", "zh": "合计"},
    "plan.time": {"en": "Time of an update", "zh": "每次更新的时间"},
    "plan.products": {"en": "matrix products", "zh": "矩阵乘法"},
    "plan.attention": {"en": "attention", "zh": "注意力"},
    "plan.pointwise": {"en": "norms, activations, sums", "zh": "归一化、激活、求和"},
    "plan.starting": {"en": "starting operations", "zh": "启动运算"},
    "plan.talking": {"en": "waiting for other devices", "zh": "等待通信"},
    "plan.idle": {"en": "bubble of the pipeline", "zh": "流水线空泡"},
    "plan.update": {"en": "optimizer", "zh": "优化器"},
    "plan.ways": {"en": "Ways that fit, the quickest first", "zh": "可行的方案（由快到慢）"},
    "plan.column.data": {"en": "data", "zh": "数据并行"},
    "plan.column.tensor": {"en": "tensor", "zh": "张量并行"},
    "plan.column.pipeline": {"en": "pipeline", "zh": "流水线"},
    "plan.column.batch": {"en": "micro-batch", "zh": "微批"},
    "plan.column.accumulate": {"en": "accumulate", "zh": "累积"},
    "plan.column.again": {"en": "checkpointing", "zh": "重算"},
    "plan.column.peak": {"en": "peak", "zh": "峰值"},
    "plan.column.update": {"en": "update", "zh": "每次更新"},
    "plan.column.sent": {"en": "sent an update", "zh": "每次更新发送"},
    "plan.yes": {"en": "yes", "zh": "是"},
    "plan.no": {"en": "no", "zh": "否"},
    "plan.run": {
        "en": "The run: {time} for {steps} updates, {rate} tokens/s, {share} of the peak.",
        "zh": "整个训练：{steps} 次更新约 {time}，{rate} 词元／秒，达到峰值算力的 {share}。",
    },
    "plan.cost": {"en": "Cost: {cost} US dollars.", "zh": "费用：{cost} 美元。"},
    "plan.hours": {"en": "In {hours} hours: {steps} updates.", "zh": "{hours} 小时内可完成 {steps} 次更新。"},
    "plan.change": {
        "en": "The recipe as it stands does not fit. Set: {keys}",
        "zh": "配方按现状放不下。请设置：{keys}",
    },
}
