"""What `transpect demo` tells."""

from transpect.base.messages.row import Row

ROWS: dict[str, Row] = {
    "demo.world": {
        "en": "1 · The world. fable tells little stories without end, for example:\n\n    {story}\n\n"
        "Each probability in it is known exactly. A story holds {nats} nats of surprise on average, and no model can "
        "do with less.",
        "zh": "一、世界。fable 会讲无穷无尽的小故事，例如：\n\n    {story}\n\n"
        "其中每个概率都精确已知。一个故事平均含 {nats} 纳特的意外，任何模型都不可能更少。",
    },
    "demo.train": {
        "en": "2 · Training. A GPT learns to predict each next token of such stories.",
        "zh": "二、训练。一个 GPT 学习预测这些故事的每个下一词元。",
    },
    "demo.loss": {
        "en": "On stories that it has not seen, its loss is {loss} nats per token. The floor, which is the loss of the "
        "world's own probabilities on the same stories, is {floor}: the model is {gap} above it.",
        "zh": "在没见过的故事上，它的损失是每词元 {loss} 纳特。下限是 {floor}（世界自己的概率在同样这些故事上的损失），"
        "模型比下限高 {gap}。",
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
        "en": "The run is in {out}. Go on with\n    transpect generate {out} {text}",
        "zh": "训练结果在 {out}。接下来可以运行\n    transpect generate {out} {text}",
    },
    "demo.column.token": {"en": "token", "zh": "词元"},
    "demo.column.id": {"en": "id", "zh": "编号"},
    "demo.column.vector": {"en": "vector", "zh": "向量"},
    "demo.column.layer": {"en": "after layer", "zh": "经过的层"},
    "demo.column.guess": {"en": "guess {rank}", "zh": "候选 {rank}"},
    "demo.column.model": {"en": "model", "zh": "模型"},
    "demo.column.exact": {"en": "exact", "zh": "精确值"},
}
