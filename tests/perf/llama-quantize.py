"""Quantises a model file by llama.cpp's own quantiser.

    python3 llama-quantize.py MODEL OUT FILE_TYPE THREADS PURE

FILE_TYPE is general.file_type of the result (15: Q4_K_M), PURE 0 or 1. Of the parameters only the first fields are set:
threads, file type, two types, then flags of one byte each (the script stops where the defaults show another layout).
"""
import ctypes as c
import os
import struct
import sys

from llama_c import FOLDER, Blob

# No type of its own for the output matrix and the embedding; flags: requantise, output too, copy only, pure.
DEFAULTS = (0, 7, 43, 43, 0, 1, 0, 0)
PURE_AT = 19

model_path, out_path, file_type, threads, pure = *sys.argv[1:3], *map(int, sys.argv[3:6])
ggml = c.CDLL(os.path.join(FOLDER, "libggml.v0.5.0.so"), mode=c.RTLD_GLOBAL)
llama = c.CDLL(os.path.join(FOLDER, "libllama.v0.5.0.so"), mode=c.RTLD_GLOBAL)
silent = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda level, text, data: None)
for set_log in (ggml.ggml_log_set, llama.llama_log_set):
    set_log.argtypes = [c.c_void_p, c.c_void_p]
    set_log(c.cast(silent, c.c_void_p), None)
ggml.ggml_backend_load_all_from_path.argtypes = [c.c_char_p]
ggml.ggml_backend_load_all_from_path(FOLDER.encode())
llama.llama_model_quantize_default_params.restype = Blob
parameters = llama.llama_model_quantize_default_params()
if struct.unpack_from("<4i4B", parameters.bytes) != DEFAULTS:
    sys.exit("the quantiser's parameters of this llama.cpp are laid out differently")
struct.pack_into("<ii", parameters.bytes, 0, threads, file_type)
struct.pack_into("<B", parameters.bytes, PURE_AT, pure)
llama.llama_model_quantize.restype = c.c_uint32
llama.llama_model_quantize.argtypes = [c.c_char_p, c.c_char_p, c.POINTER(Blob)]
if llama.llama_model_quantize(model_path.encode(), out_path.encode(), c.byref(parameters)) != 0:
    sys.exit("llama.cpp did not quantise the model")
