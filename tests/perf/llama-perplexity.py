"""Perplexity of a text by llama.cpp's own arithmetic. Prints {"perplexity", "tokens", "windows"}.

    python3 llama-perplexity.py MODEL TEXT WINDOW THREADS
"""
import json
import math
import sys

from llama_c import Llama

model_path, text_path, window, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
llama = Llama(model_path, threads, window, batch=window)
with open(text_path, "rb") as file:
    ids = llama.tokenize(file.read())
bos = llama.bos()

total, counted = 0.0, 0
windows = len(ids) // window
for index in range(windows):
    llama.clear()
    part = ids[index * window : (index + 1) * window]
    if bos is not None:
        part[0] = bos
    llama.step([(token, position, 0, position >= window // 2) for position, token in enumerate(part)])
    for position in range(window // 2, window - 1):
        row = llama.logits(position)
        # Logits stay far below 700, so that no maximum need be taken out before exp.
        total += math.log(sum(map(math.exp, row))) - row[part[position + 1]]
        counted += 1
print(json.dumps({"perplexity": math.exp(total / counted), "tokens": counted, "windows": windows}))
