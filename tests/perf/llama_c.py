"""llama.cpp v0.5.0 through the C interface of the shared library that the npm package @node-llama-cpp/linux-x64
carries: the functions that the comparisons call. Without its JavaScript face, which adds 5 to 10 % to a decode step
of a small model and copies every logit into a map.

Parameter structures travel as blobs larger than the real ones: the callee reads its own part. Only known fields are
set, by offset, and opening stops where the defaults show another layout.
"""
import ctypes as c
import os
import struct
import sys
import tempfile

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_modules", "@node-llama-cpp", "linux-x64", "bins", "linux-x64")
# n_ctx, n_batch, n_ubatch, n_seq_max, then n_threads and n_threads_batch at 28, flash attention at 52.
DEFAULTS = (512, 2048, 512, 1, 0, 0, 1, 4, 4, 0, -1, -1, -1, -1)
THREADS_AT, FLASH_AT = 28, 52


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


def _function(library, name, result, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = result, list(arguments)
    return found


def _backends(ggml, cpu):
    """The best library for this CPU, or the named one only (such as "haswell": AVX2 and nothing above)."""
    load = _function(ggml, "ggml_backend_load_all_from_path", None, c.c_char_p)
    if cpu is None:
        load(FOLDER.encode())
        return
    with tempfile.TemporaryDirectory() as folder:
        name = f"libggml-cpu-{cpu}.so"
        os.symlink(os.path.join(FOLDER, name), os.path.join(folder, name))
        load(folder.encode())


class Llama:
    """One model and one context. `per_sequence` tokens for each of `sequences`."""

    def __init__(self, path, threads, per_sequence, sequences=1, batch=2048, flash=-1, cpu=None):
        ggml = c.CDLL(os.path.join(FOLDER, "libggml.v0.5.0.so"), mode=c.RTLD_GLOBAL)
        self.library = c.CDLL(os.path.join(FOLDER, "libllama.v0.5.0.so"), mode=c.RTLD_GLOBAL)
        self._silent = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda level, text, data: None)
        self._call("llama_log_set", None, c.c_void_p, c.c_void_p)(self._silent, None)
        _function(ggml, "ggml_log_set", None, c.c_void_p, c.c_void_p)(self._silent, None)
        _backends(ggml, cpu)
        self._call("llama_backend_init", None)()
        parameters = self._call("llama_model_default_params", Blob)()
        self.model = self._call("llama_model_load_from_file", c.c_void_p, c.c_char_p, Blob)(path.encode(), parameters)
        parameters = self._call("llama_context_default_params", Blob)()
        if struct.unpack_from(f"<{len(DEFAULTS)}i", parameters.bytes) != DEFAULTS:
            sys.exit("the context parameters of this llama.cpp are laid out differently")
        # Sequences have a cache of their own each, rounded up to what llama.cpp likes.
        context = (per_sequence + 255) // 256 * 256 * sequences
        struct.pack_into("<IIII", parameters.bytes, 0, context, batch, min(batch, 512), sequences)
        struct.pack_into("<ii", parameters.bytes, THREADS_AT, threads, threads)
        struct.pack_into("<i", parameters.bytes, FLASH_AT, flash)
        self.context = self.model and self._call("llama_init_from_model", c.c_void_p, c.c_void_p, Blob)(self.model, parameters)
        if not self.context:
            sys.exit("llama.cpp did not load the model")
        self.vocab = self._call("llama_model_get_vocab", c.c_void_p, c.c_void_p)(self.model)
        self.vocab_size = self._call("llama_vocab_n_tokens", c.c_int32, c.c_void_p)(self.vocab)
        self.batch = self._call("llama_batch_init", Batch, c.c_int32, c.c_int32, c.c_int32)(batch, 0, 1)
        self.batch_size = batch
        self._decode = self._call("llama_decode", c.c_int32, c.c_void_p, Batch)
        self._synchronize = self._call("llama_synchronize", None, c.c_void_p)
        self._logits = self._call("llama_get_logits_ith", c.POINTER(c.c_float), c.c_void_p, c.c_int32)
        self._memory = self._call("llama_get_memory", c.c_void_p, c.c_void_p)(self.context)
        self._clear = self._call("llama_memory_clear", None, c.c_void_p, c.c_bool)
        self._greedy = self._call("llama_sampler_init_greedy", c.c_void_p)()
        self._sample = self._call("llama_sampler_sample", c.c_int32, c.c_void_p, c.c_void_p, c.c_int32)

    def _call(self, name, result, *arguments):
        return _function(self.library, name, result, *arguments)

    def system(self):
        return self._call("llama_print_system_info", c.c_char_p)().decode()

    def clear(self):
        self._clear(self._memory, True)

    def step(self, rows):
        """One batch of (token, position, sequence, wants logits)."""
        self.batch.n_tokens = len(rows)
        for index, (token, position, sequence, logits) in enumerate(rows):
            self.batch.token[index], self.batch.pos[index] = token, position
            self.batch.n_seq_id[index], self.batch.seq_id[index][0] = 1, sequence
            self.batch.logits[index] = logits
        if self._decode(self.context, self.batch) != 0:
            sys.exit("llama.cpp failed to decode")
        self._synchronize(self.context)

    def sample(self, row):
        return self._sample(self._greedy, self.context, row)

    def logits(self, row):
        address = c.addressof(self._logits(self.context, row).contents)
        return memoryview((c.c_float * self.vocab_size).from_address(address)).cast("B").cast("f")

    def tokenize(self, text):
        ids = (c.c_int32 * (len(text) + 8))()
        call = self._call("llama_tokenize", c.c_int32, c.c_void_p, c.c_char_p, c.c_int32, c.POINTER(c.c_int32), c.c_int32, c.c_bool, c.c_bool)
        return list(ids[: call(self.vocab, text, len(text), ids, len(ids), True, False)])

    def bos(self):
        """The id that every window starts with, or None."""
        if not self._call("llama_vocab_get_add_bos", c.c_bool, c.c_void_p)(self.vocab):
            return None
        return self._call("llama_vocab_bos", c.c_int32, c.c_void_p)(self.vocab)
