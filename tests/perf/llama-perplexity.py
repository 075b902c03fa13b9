"""Perplexity of a text by llama.cpp's own arithmetic, through the C interface of the shared library that the
npm package @node-llama-cpp/linux-x64 carries (its JavaScript face copies every logit into a map, which takes ten
times as long as computing it). Prints {"perplexity", "tokens", "windows"}.

    python3 llama-perplexity.py MODEL TEXT WINDOW THREADS

Parameter structures travel as blobs larger than the real ones: the callee reads its own part. Only the first
fields of the context parameters are set: n_ctx, n_batch, n_ubatch, n_seq_max, and at byte 28 n_threads and
n_threads_batch (as the defaults of v0.5.0 show; the script stops where they do not).
"""
import ctypes as c
import json
import math
import os
import struct
import sys

model_path, text_path, window, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_modules", "@node-llama-cpp", "linux-x64", "bins", "linux-x64")


class Blob(c.Structure):
    _fields_ = [("bytes", c.c_ubyte * 1024)]


class Batch(c.Structure):
    _fields_ = [
        ("n_tokens", c.c_int32),
        ("token", c.POINTER(c.c_int32)),
        ("embd", c.POINTER(c.c_float)),
        ("pos", c.POINTER(c.c_int32)),
        ("n_seq_id", c.POINTER(c.c_int32)),
        ("seq_id", c.POINTER(c.POINTER(c.c_int32))),
        ("logits", c.POINTER(c.c_int8)),
    ]


def function(library, name, result, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = result, list(arguments)
    return found


ggml = c.CDLL(os.path.join(folder, "libggml.v0.5.0.so"), mode=c.RTLD_GLOBAL)
llama = c.CDLL(os.path.join(folder, "libllama.v0.5.0.so"), mode=c.RTLD_GLOBAL)
silent = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda level, text, data: None)
function(llama, "llama_log_set", None, c.c_void_p, c.c_void_p)(silent, None)
function(ggml, "ggml_backend_load_all_from_path", None, c.c_char_p)(folder.encode())
function(llama, "llama_backend_init", None)()
model_params = function(llama, "llama_model_default_params", Blob)()
model = function(llama, "llama_model_load_from_file", c.c_void_p, c.c_char_p, Blob)(model_path.encode(), model_params)
context_params = function(llama, "llama_context_default_params", Blob)()
if struct.unpack_from("<9i", context_params.bytes) != (512, 2048, 512, 1, 0, 0, 1, 4, 4):
    sys.exit("the context parameters of this llama.cpp are laid out differently")
struct.pack_into("<IIII", context_params.bytes, 0, window, window, window, 1)
struct.pack_into("<ii", context_params.bytes, 28, threads, threads)
context = function(llama, "llama_init_from_model", c.c_void_p, c.c_void_p, Blob)(model, context_params)
if not model or not context:
    sys.exit("llama.cpp did not load the model")
vocab = function(llama, "llama_model_get_vocab", c.c_void_p, c.c_void_p)(model)
n_vocab = function(llama, "llama_vocab_n_tokens", c.c_int32, c.c_void_p)(vocab)
add_bos = function(llama, "llama_vocab_get_add_bos", c.c_bool, c.c_void_p)(vocab)
bos = function(llama, "llama_vocab_bos", c.c_int32, c.c_void_p)(vocab)
text = open(text_path, "rb").read()
ids = (c.c_int32 * (len(text) + 8))()
tokenize = function(llama, "llama_tokenize", c.c_int32, c.c_void_p, c.c_char_p, c.c_int32, c.POINTER(c.c_int32), c.c_int32, c.c_bool, c.c_bool)
count = tokenize(vocab, text, len(text), ids, len(ids), True, False)
memory = function(llama, "llama_get_memory", c.c_void_p, c.c_void_p)(context)
clear = function(llama, "llama_memory_clear", None, c.c_void_p, c.c_bool)
batch = function(llama, "llama_batch_init", Batch, c.c_int32, c.c_int32, c.c_int32)(window, 0, 1)
decode = function(llama, "llama_decode", c.c_int32, c.c_void_p, Batch)
logits_at = function(llama, "llama_get_logits_ith", c.POINTER(c.c_float), c.c_void_p, c.c_int32)

total, counted = 0.0, 0
windows = count // window
for index in range(windows):
    clear(memory, True)
    batch.n_tokens = window
    part = list(ids[index * window : (index + 1) * window])
    if add_bos:
        part[0] = bos
    for position, token in enumerate(part):
        batch.token[position], batch.pos[position] = token, position
        batch.n_seq_id[position], batch.seq_id[position][0] = 1, 0
        batch.logits[position] = position >= window // 2
    if decode(context, batch) != 0:
        sys.exit("llama.cpp failed to decode")
    for position in range(window // 2, window - 1):
        row = memoryview((c.c_float * n_vocab).from_address(c.addressof(logits_at(context, position).contents))).cast("B").cast("f")
        # Logits stay far below 700, so that no maximum need be taken out before exp.
        total += math.log(sum(map(math.exp, row))) - row[part[position + 1]]
        counted += 1
print(json.dumps({"perplexity": math.exp(total / counted), "tokens": counted, "windows": windows}))
