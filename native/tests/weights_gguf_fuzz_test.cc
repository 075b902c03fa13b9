// Mutated GGUF files: headers, keys, tensor directories, truncations, split sets. Whatever they
// hold, the reader answers with a model or an EngineError, soon, and without large allocations.
//
//   weights_gguf_fuzz_test [mutations = 10000] [seed = 1]     (run it under address,undefined too)
//
// A failure prints the number of the mutation; the same seed makes it again.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "check.h"
#include "tiny_model.h"
#include "weights/plan.h"

namespace {
std::atomic<size_t> largest_allocation{0};

void* counted_allocation(size_t size) {
  size_t seen = largest_allocation.load();
  while (size > seen && !largest_allocation.compare_exchange_weak(seen, size)) {
  }
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t size) { return counted_allocation(size); }
void* operator new[](size_t size) { return counted_allocation(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

using namespace coxswain;
using namespace coxswain::weights;
using coxswain::testing::GgufBuilder;
using coxswain::testing::TinyModel;

namespace {

using Bytes = std::vector<std::byte>;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  size_t below(size_t bound) { return bound == 0 ? 0 : static_cast<size_t>(next() % bound); }

 private:
  uint64_t state_;
};

// One input: the parts of a model, one or several.
using Parts = std::vector<Bytes>;

TinyModel smallest(const char* architecture) {
  TinyModel model;
  model.architecture = architecture;
  model.layers = 1;
  model.hidden = 32;
  model.heads = 2;
  model.kv_heads = 1;
  model.ffn = 32;
  model.vocab = 5;
  return model;
}

std::vector<Parts> corpus() {
  std::vector<Parts> list;
  list.push_back({smallest("llama").builder().build()});
  TinyModel quantised = smallest("llama");
  quantised.type = TensorType::kQ4_0;
  quantised.tied = false;
  GgufBuilder scaled = quantised.builder();
  scaled.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4);
  scaled.texts("tokenizer.ggml.tokens", {"a", "b", "c", "", "e"});
  scaled.array<float>("tokenizer.ggml.scores", 6, {0, -1, -2, -3, -4});
  scaled.array<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 3, 3});
  list.push_back({scaled.build()});
  TinyModel biased = smallest("qwen2");
  biased.bias = true;
  list.push_back({biased.builder().build()});
  TinyModel normed = smallest("qwen3");
  normed.qk_norm = true;
  GgufBuilder aligned = normed.keys();
  aligned.alignment = 64;
  aligned.u32("general.alignment", 64);
  normed.add_tensors(aligned);
  list.push_back({aligned.build()});
  // A split model: keys and embedding, then the layer, then the rest.
  const TinyModel model = smallest("llama");
  GgufBuilder first = model.keys();
  GgufBuilder second;
  GgufBuilder third;
  for (GgufBuilder* part : {&first, &second, &third}) {
    const uint16_t index = part == &first ? 0 : part == &second ? 1 : 2;
    part->u16("split.no", index).u16("split.count", 3).i32("split.tensors.count", 11);
  }
  first.tensor("token_embd.weight", {32, 5}, TensorType::kF32);
  model.layer_tensors(second, 0);
  third.tensor("output_norm.weight", {32}, TensorType::kF32);
  list.push_back({first.build(), second.build(), third.build()});
  return list;
}

// Values that sit at the edges of what the fields allow.
constexpr uint64_t kEdges[] = {0,
                               1,
                               2,
                               3,
                               7,
                               8,
                               9,
                               13,
                               16,
                               31,
                               32,
                               33,
                               63,
                               64,
                               255,
                               256,
                               0x7fff,
                               0x8000,
                               0xffff,
                               0x10000,
                               1u << 24,
                               0x7fffffff,
                               0x80000000,
                               0xffffffff,
                               uint64_t{1} << 32,
                               1ull << 40,
                               1ull << 60,
                               1ull << 62,
                               1ull << 63,
                               ~uint64_t{0},
                               ~uint64_t{31}};

// Most mutations fall on the directory, not on the data behind it.
size_t place(Random& random, const Bytes& bytes) {
  const size_t head = std::min<size_t>(bytes.size(), 2600);
  return random.below(random.below(8) == 0 ? bytes.size() : head);
}

void overwrite(Random& random, Bytes& bytes, size_t width) {
  const size_t at = place(random, bytes);
  const uint64_t value =
      random.below(4) == 0 ? random.next() : kEdges[random.below(std::size(kEdges))];
  for (size_t i = 0; i < width && at + i < bytes.size(); ++i) {
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

// Adds a small number to a field of 8 bytes: lengths and counts off by a little.
void nudge(Random& random, Bytes& bytes) {
  const size_t at = place(random, bytes);
  const int delta = static_cast<int>(random.below(9)) - 4;
  if (at < bytes.size()) bytes[at] = static_cast<std::byte>(static_cast<int>(bytes[at]) + delta);
}

void mutate(Random& random, Bytes& bytes) {
  if (bytes.empty()) return;
  const auto at = [&](size_t offset) {
    return bytes.begin() + static_cast<std::ptrdiff_t>(offset);
  };
  switch (random.below(9)) {
    case 0:
      return overwrite(random, bytes, 1);
    case 1:
      return overwrite(random, bytes, 4);
    case 2:
    case 3:
      return overwrite(random, bytes, 8);
    case 4:
      return nudge(random, bytes);
    case 5: {
      const size_t bit = random.below(8);
      bytes[place(random, bytes)] ^= static_cast<std::byte>(1u << bit);
      return;
    }
    case 6:
      bytes.resize(random.below(bytes.size()));
      return;
    case 7: {  // take out a stretch
      const size_t from = place(random, bytes);
      const size_t count = std::min(bytes.size() - from, 1 + random.below(64));
      bytes.erase(at(from), at(from + count));
      return;
    }
    default: {  // repeat a stretch elsewhere: duplicate keys and tensors
      const size_t from = place(random, bytes);
      const Bytes stretch(at(from), at(from + std::min(bytes.size() - from, 1 + random.below(96))));
      bytes.insert(at(place(random, bytes)), stretch.begin(), stretch.end());
    }
  }
}

void mutate_set(Random& random, Parts& parts) {
  if (parts.size() > 1 && random.below(6) == 0) {
    switch (random.below(3)) {
      case 0:
        std::swap(parts[random.below(parts.size())], parts[random.below(parts.size())]);
        break;
      case 1:
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(random.below(parts.size())));
        break;
      default:
        parts.push_back(parts[random.below(parts.size())]);
    }
    if (random.below(2) == 0) return;
  }
  const size_t count = 1 + random.below(3);
  for (size_t i = 0; i < count; ++i) mutate(random, parts[random.below(parts.size())]);
}

Topology random_topology(Random& random) {
  Topology topology;
  const size_t ranks = 1 + random.below(3);
  for (size_t i = 0; i < ranks; ++i) topology.split.push_back(static_cast<double>(random.below(4)));
  topology.pp = static_cast<int>(random.below(3));
  topology.exact = random.below(2) == 0;
  topology.context = static_cast<int64_t>(random.below(2) * 100);
  return topology;
}

struct Tally {
  size_t parsed = 0, shaped = 0, refused = 0;
  uint64_t touched = 0;  // sum of data bytes, so that reads are not optimised away
};

// Everything that the product does with a file before it runs it.
void use(Random& random, const GgufFile& file, Tally& tally) {
  ++tally.parsed;
  for (const TensorInfo& tensor : file.tensors()) {
    tally.touched += static_cast<uint64_t>(tensor.data[0]) +
                     static_cast<uint64_t>(tensor.data[tensor.bytes - 1]);
  }
  tally.touched += file.fingerprint().size();
  const ModelShape shape = read_model_shape(file);
  ++tally.shaped;
  tally.touched += make_rope_table(shape, file).frequency.size();
  tally.touched += make_plan(file, random_topology(random)).ranks.size();
}

bool run_one(Random& random, const Parts& parts, Tally& tally) {
  // Blocks of exactly the right size: the sanitiser sees the first byte read beyond.
  std::vector<std::unique_ptr<std::byte[]>> blocks;
  std::vector<std::span<const std::byte>> spans;
  std::vector<std::string> names;
  size_t total = 0;
  for (const Bytes& bytes : parts) {
    blocks.push_back(std::make_unique<std::byte[]>(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), blocks.back().get());
    spans.emplace_back(blocks.back().get(), bytes.size());
    names.push_back("part");
    total += bytes.size();
  }
  largest_allocation = 0;
  const int64_t started = now_ns();
  try {
    if (!parts.empty()) use(random, *GgufFile::parse_parts(spans, names), tally);
  } catch (const EngineError& error) {
    ++tally.refused;
    const std::string& code = error.code();
    const bool known =
        code == "GGUF_INVALID" || code == "GGUF_UNSUPPORTED" || code == "MODEL_UNSUPPORTED";
    if (!known) {
      std::fprintf(stderr, "unexpected code %s: %s\n", code.c_str(), error.what());
      return false;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "unexpected exception: %s\n", error.what());
    return false;
  }
  const bool quick = now_ns() - started < 2'000'000'000;
  const bool small = largest_allocation <= 64 * total + (64 << 10);
  if (!quick) std::fprintf(stderr, "took longer than 2 s\n");
  if (!small)
    std::fprintf(stderr, "allocated %zu bytes for a file of %zu\n", largest_allocation.load(),
                 total);
  return quick && small;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t mutations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const std::vector<Parts> models = corpus();
  Tally tally;
  Random plain(0);
  for (const Parts& model : models) CHECK(run_one(plain, model, tally));
  CHECK(tally.shaped == models.size());
  for (uint64_t i = 0; i < mutations; ++i) {
    Random random(seed * 0x100000001b3u + i);
    Parts parts = models[random.below(models.size())];
    mutate_set(random, parts);
    if (!CHECK(run_one(random, parts, tally))) {
      std::fprintf(stderr, "mutation %llu of seed %llu\n", static_cast<unsigned long long>(i),
                   static_cast<unsigned long long>(seed));
    }
  }
  // The mutator reaches both sides of every gate.
  if (mutations >= 1000) {
    CHECK(tally.refused > mutations / 4);
    CHECK(tally.parsed > mutations / 50);
    CHECK(tally.shaped > mutations / 100);
  }
  std::printf("%llu mutations: %zu parsed, %zu were whole models, %zu refused (%llu)\n",
              static_cast<unsigned long long>(mutations), tally.parsed, tally.shaped, tally.refused,
              static_cast<unsigned long long>(tally.touched % 10));
  return coxswain::testing::finish("weights_gguf_fuzz_test");
}
