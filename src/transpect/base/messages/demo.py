"""What `transpect demo` tells."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "demo.world": {
        "en": "1 · The world. *fable* tells little stories without end, for example:\n\n    {story}\n\n"
        "Every probability in it is known, so the best possible loss is a number: {floor} nats per token.",
        "zh": "一、世界。fable 会讲无穷无尽的小故事，例如：\n\n    {story}\n\n"
        "其中每个概率都精确已知，因此最低可能的损失是一个确定的数：每词元 {floor} 纳特。",
    },
    "demo.train": {
        "en": "2 · Training. A GPT of {parameters} parameters ({layers} layers, {heads} heads, d_model {width}) learns to "
        "predict each next token.",
        "zh": "二、训练。一个 {parameters} 参数的 GPT（{layers} 层，{heads} 头，宽度 {width}）学习预测每个下一词元。",
    },
    "demo.trained": {
        "en": "{out} holds a trained model already; `--fresh` trains again.",
        "zh": "{out} 中已有训练好的模型；加 --fresh 可重新训练。",
    },
    "demo.loss": {
        "en": "Loss on stories it has not seen: {loss} nats per token. The least possible on these stories: {floor}. "
        "Distance: {gap}.",
        "zh": "在没见过的故事上的损失：每词元 {loss} 纳特；这些故事的最低可能值：{floor}；相距 {gap}。",
    },
    "demo.walk": {
        "en": "3 · The way of “{text}” through the network.",
        "zh": "三、“{text}” 走过网络。",
    },
    "demo.tokens": {
        "en": "Tokens. The text becomes ids, and each id a vector of {width} numbers (the first ones of each, and its "
        "length ‖x‖):",
        "zh": "词元。文本变成编号，每个编号变成 {width} 个数的向量（列出各自的前几个数与长度 ‖x‖）：",
    },
    "demo.scores": {
        "en": "Attention. In layer {layer}, head {head}, each token asks (q) and all before it answer (k). "
        "The scores q·k/√{head_dim}:",
        "zh": "注意力。在第 {layer} 层第 {head} 头，每个词元发问（q），它之前的词元作答（k）。得分 q·k/√{head_dim}：",
    },
    "demo.weights": {
        "en": "The softmax of what each row may see gives the weights with which the values are mixed:",
        "zh": "每行对可见部分取 softmax，得到混合各词元内容（v）的权重：",
    },
    "demo.norms": {
        "en": "The residual stream. Every layer adds to each token's vector; its length ‖x‖ grows:",
        "zh": "残差流。每一层都往各词元的向量上添加内容，向量长度 ‖x‖ 随之变化：",
    },
    "demo.lens": {
        "en": "The logit lens. What the model would say after “{text}” if it stopped at this layer:",
        "zh": "逐层透镜。若在该层就停下，模型在 “{text}” 之后会说什么：",
    },
    "demo.guesses": {
        "en": "The end: the most probable next tokens, and the exact probabilities of the world beside them:",
        "zh": "终点：最可能的下一词元，旁边是这个世界的精确概率：",
    },
    "demo.result": {
        "en": "{text} → {token}. The model is in {out}; go on with\n    transpect generate {out} {text}",
        "zh": "{text} → {token}。模型保存在 {out}，可以接着运行\n    transpect generate {out} {text}",
    },
    "demo.column.token": {"en": "token", "zh": "词元"},
    "demo.column.id": {"en": "id", "zh": "编号"},
    "demo.column.vector": {"en": "vector", "zh": "向量"},
    "demo.column.layer": {"en": "after layer", "zh": "经过的层"},
    "demo.column.guess": {"en": "guess {rank}", "zh": "第 {rank} 猜测"},
    "demo.column.model": {"en": "model", "zh": "模型"},
    "demo.column.exact": {"en": "exact", "zh": "精确值"},
}
