// Whole files: what the recipe chooses, what the writer keeps, the same bytes from any number of
// threads, and nothing left behind by whatever goes wrong.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include "base/error.h"
#include "kernels/kernels.h"
#include "quantize/blocks.h"
#include "quantize/output_file.h"
#include "quantize/quantize.h"
#include "tests/check.h"
#include "tests/gguf_builder.h"
#include "tests/kernels_support.h"

namespace {

using namespace coxswain;
using quantize::QuantizePlan;
using weights::GgufFile;
namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string path = (fs::temp_directory_path() / "cox-quantize-XXXXXX").string();
    path_ = mkdtemp(path.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  // Names of what is in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  fs::path path_;
};

void write_file(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string code_of(const std::function<void()>& work, std::string* message = nullptr) {
  try {
    work();
  } catch (const EngineError& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  return "";
}

// Sixteen layers of llama with a row that only 32 divides and one that nothing divides.
testing::GgufBuilder model(uint32_t salt = 1) {
  testing::GgufBuilder file;
  file.text("general.architecture", "llama").u32("llama.block_count", 16);
  file.u16("odd.width", 7).u64("odd.large", (1ULL << 63) + 1).boolean("odd.flag", 1);
  file.f32("odd.float", 0.1f).u32("general.file_type", 0);
  file.texts("tokenizer.ggml.tokens", {"a", "", "\xff"}).array<int32_t>("odd.list", 5, {-1, 2});
  file.tensor("token_embd.weight", {256, 6}, TensorType::kF32, salt);
  for (int layer = 0; layer < 16; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    file.tensor(block + "attn_norm.weight", {256}, TensorType::kF32, salt);
    file.tensor(block + "attn_v.weight", {256, 3}, TensorType::kF32, salt);
    file.tensor(block + "ffn_down.weight", {768, 2}, TensorType::kF32, salt);
    file.tensor(block + "ffn_up.weight", {256, 3}, TensorType::kF32, salt);
  }
  file.tensor("blk.0.ffn_gate.weight", {96, 5}, TensorType::kF32, salt);
  file.tensor("blk.0.attn_q.weight", {40, 2}, TensorType::kF32, salt);
  file.tensor("blk.0.ffn_gate_inp.weight", {256, 4}, TensorType::kF16, salt);
  file.tensor("blk.0.attn_q.bias", {40}, TensorType::kF16, salt);
  file.tensor("output.weight", {256, 6}, TensorType::kF32, salt);
  return file;
}

QuantizePlan plan_of(const GgufFile& file, std::string_view scheme, bool pure = false) {
  return quantize::plan_quantization(file, quantize::scheme_named(scheme), pure);
}

void run(const std::string& from, const std::string& to, std::string_view scheme, int threads = 1,
         bool replace = false) {
  const auto file = GgufFile::open(from);
  quantize::run_quantization(*file, plan_of(*file, scheme), {to, replace, threads, {}, nullptr});
}

TensorType type_in(const QuantizePlan& plan, std::string_view name) {
  for (const quantize::TensorStep& step : plan.steps) {
    if (step.target.name == name) return step.target.type;
  }
  CHECK(false);
  return TensorType::kF32;
}

void check_recipe() {
  const auto bytes = model().build();
  const auto file = GgufFile::parse(bytes, "model");
  const QuantizePlan plan = plan_of(*file, "q4_k_m");
  const std::vector<int> more = {0, 1, 4, 7, 10, 13, 14, 15};
  for (int layer = 0; layer < 16; ++layer) {
    const bool has_more = std::find(more.begin(), more.end(), layer) != more.end();
    const std::string block = "blk." + std::to_string(layer) + ".";
    const TensorType expected = has_more ? TensorType::kQ6_K : TensorType::kQ4_K;
    CHECK(type_in(plan, block + "attn_v.weight") == expected);
    CHECK(type_in(plan, block + "ffn_down.weight") == expected);
    CHECK(type_in(plan, block + "ffn_up.weight") == TensorType::kQ4_K);
    CHECK(type_in(plan, block + "attn_norm.weight") == TensorType::kF32);
  }
  CHECK(type_in(plan, "token_embd.weight") == TensorType::kQ4_K);
  CHECK(type_in(plan, "output.weight") == TensorType::kQ6_K);
  CHECK(type_in(plan, "blk.0.ffn_gate.weight") == TensorType::kQ5_0);
  CHECK(type_in(plan, "blk.0.attn_q.weight") == TensorType::kF16);
  CHECK(type_in(plan, "blk.0.ffn_gate_inp.weight") == TensorType::kF16);
  CHECK(type_in(plan, "blk.0.attn_q.bias") == TensorType::kF32);
  CHECK(!plan.requantizes);
  CHECK(type_in(plan_of(*file, "Q5_K"), "blk.0.ffn_gate.weight") == TensorType::kQ5_1);
  CHECK(type_in(plan_of(*file, "Q6_K"), "blk.0.ffn_gate.weight") == TensorType::kQ8_0);
  CHECK(type_in(plan_of(*file, "Q4_0"), "output.weight") == TensorType::kQ6_K);
  CHECK(type_in(plan_of(*file, "Q4_0", true), "output.weight") == TensorType::kQ4_0);
  CHECK(type_in(plan_of(*file, "Q8_0"), "output.weight") == TensorType::kQ8_0);
  CHECK(type_in(plan_of(*file, "BF16"), "blk.3.ffn_up.weight") == TensorType::kBF16);
  std::string message;
  CHECK(code_of([] { quantize::scheme_named("Q4_X"); }, &message) == "USAGE_INVALID");
  CHECK(message.find("Q4_X") != std::string::npos && message.find("Q4_K_M") != std::string::npos);
  for (const quantize::Scheme& scheme : quantize::schemes())
    CHECK(quantize::is_target_type(scheme.type));
}

// Without output.weight the embedding is the output matrix.
void check_tied_output() {
  testing::GgufBuilder builder;
  builder.text("general.architecture", "llama");
  builder.tensor("token_embd.weight", {256, 6}, TensorType::kF32);
  const auto bytes = builder.build();
  const auto file = GgufFile::parse(bytes, "tied");
  CHECK(type_in(plan_of(*file, "Q4_K_M"), "token_embd.weight") == TensorType::kQ6_K);
}

void check_kept_metadata(const GgufFile& before, const GgufFile& after) {
  size_t kept = 0;
  for (size_t i = 0; i < before.metadata().size(); ++i) {
    const auto& [key, value] = before.metadata()[i];
    if (key == "general.file_type" || key.starts_with("split.")) continue;
    for (size_t j = 0; j < after.metadata().size(); ++j) {
      if (after.metadata()[j].first != key) continue;
      CHECK(std::ranges::equal(before.raw_value(i), after.raw_value(j)));
      ++kept;
    }
  }
  CHECK(kept + 2 == after.metadata().size());
  CHECK(after.find("split.count") == nullptr);
  CHECK(after.integer("general.quantization_version") == 2);
}

// Every tensor of the new file is the quantised tensor of the old one, whatever its place.
void check_tensors(const GgufFile& before, const GgufFile& after) {
  CHECK(before.tensors().size() == after.tensors().size());
  for (const weights::TensorInfo& old : before.tensors()) {
    const weights::TensorInfo& made = after.tensor(old.name);
    CHECK(made.dims == old.dims && made.dim_count == old.dim_count);
    const int64_t count = old.dims[0] * old.rows();
    std::vector<float> floats(static_cast<size_t>(count));
    kernels::dequantize_row(old.type, old.data, 0, count, floats.data());
    std::vector<uint8_t> blocks(made.bytes);
    if (made.type == old.type) {
      std::memcpy(blocks.data(), old.data, old.bytes);
    } else {
      quantize::quantize_blocks(made.type, floats.data(), count, blocks.data());
    }
    CHECK(std::memcmp(blocks.data(), made.data, made.bytes) == 0);
  }
}

void check_file() {
  const Folder folder;
  write_file(folder.file("in.gguf"), model().build());
  uint64_t reported = 0;
  const auto before = GgufFile::open(folder.file("in.gguf"));
  const QuantizePlan plan = plan_of(*before, "Q4_K_M");
  quantize::run_quantization(*before, plan,
                             {folder.file("out.gguf"), false, 1,
                              [&reported](uint64_t done, uint64_t total) {
                                CHECK(done >= reported && done <= total);
                                reported = done;
                              },
                              nullptr});
  uint64_t elements = 0;
  for (const auto& tensor : before->tensors())
    elements += static_cast<uint64_t>(tensor.dims[0] * tensor.rows());
  CHECK(reported == elements);
  const auto after = GgufFile::open(folder.file("out.gguf"));
  CHECK(after->file_bytes() == plan.layout.file_bytes);
  CHECK(after->integer("general.file_type") == 15);
  check_kept_metadata(*before, *after);
  check_tensors(*before, *after);
  CHECK((folder.names() == std::vector<std::string>{"in.gguf", "out.gguf"}));
  CHECK(plan_of(*after, "Q4_0").requantizes);
  CHECK(!plan_of(*after, "F16").requantizes);
  CHECK(!plan_of(*after, "Q4_K_M").requantizes);
  // Quantising to what it is already changes nothing.
  run(folder.file("out.gguf"), folder.file("again.gguf"), "Q4_K_M");
  CHECK(read_file(folder.file("again.gguf")).size() == read_file(folder.file("out.gguf")).size());
  check_tensors(*after, *GgufFile::open(folder.file("again.gguf")));
}

// Random weights in tensors of several chunks that end in the middle of one.
void check_threads() {
  const Folder folder;
  testing::Random random(21);
  testing::GgufBuilder builder;
  builder.text("general.architecture", "llama").u32("general.alignment", 64);
  builder.alignment = 64;
  for (int i = 0; i < 5; ++i) {
    builder.tensor("blk." + std::to_string(i) + ".ffn_up.weight", {768, 97 + 40 * i},
                   TensorType::kF16);
  }
  std::vector<std::byte> bytes = builder.build();
  {
    const auto file = GgufFile::parse(bytes, "model");
    for (const weights::TensorInfo& tensor : file->tensors()) {
      const auto at = static_cast<size_t>(tensor.data - bytes.data());
      for (size_t i = 0; i < tensor.bytes; i += 2) {
        testing::put_half(reinterpret_cast<uint8_t*>(bytes.data() + at + i), random.normal());
      }
    }
  }
  write_file(folder.file("in.gguf"), bytes);
  for (const std::string_view scheme : {"Q4_K_M", "Q5_1", "F32"}) {
    std::string first;
    for (const int threads : {1, 2, 3, 64}) {
      run(folder.file("in.gguf"), folder.file("out.gguf"), scheme, threads, true);
      const std::string made = read_file(folder.file("out.gguf"));
      if (first.empty()) first = made;
      CHECK(made == first);
    }
    check_tensors(*GgufFile::open(folder.file("in.gguf")),
                  *GgufFile::open(folder.file("out.gguf")));
  }
}

void check_split_model() {
  const Folder folder;
  for (int part = 0; part < 2; ++part) {
    testing::GgufBuilder builder;
    if (part == 0) builder.text("general.architecture", "llama").text("general.name", "split");
    builder.u16("split.no", static_cast<uint16_t>(part))
        .u16("split.count", 2)
        .i32("split.tensors.count", 3);
    builder.tensor("blk." + std::to_string(part) + ".ffn_up.weight", {256, 2}, TensorType::kF32, 3);
    if (part == 1) builder.tensor("output.weight", {256, 2}, TensorType::kF32, 5);
    write_file(folder.file("m-0000" + std::to_string(part + 1) + "-of-00002.gguf"),
               builder.build());
  }
  run(folder.file("m-00002-of-00002.gguf"), folder.file("one.gguf"), "Q8_0");
  const auto before = GgufFile::open(folder.file("m-00001-of-00002.gguf"));
  const auto after = GgufFile::open(folder.file("one.gguf"));
  check_kept_metadata(*before, *after);
  check_tensors(*before, *after);
}

void check_existing_file() {
  const Folder folder;
  write_file(folder.file("in.gguf"), model().build());
  write_file(folder.file("out.gguf"), {std::byte{1}});
  CHECK(code_of([&] { run(folder.file("in.gguf"), folder.file("out.gguf"), "Q8_0"); }) ==
        "FILE_UNREADABLE");
  CHECK(read_file(folder.file("out.gguf")).size() == 1);
  run(folder.file("in.gguf"), folder.file("out.gguf"), "Q8_0", 1, true);
  CHECK(GgufFile::open(folder.file("out.gguf"))->tensors().size() == 70);
  // A file that appears while the work goes on is not replaced either.
  quantize::OutputFile late(folder.file("late.gguf"), 1, false);
  write_file(folder.file("late.gguf"), {std::byte{1}, std::byte{2}});
  CHECK(code_of([&] { late.publish(); }) == "FILE_UNREADABLE");
  CHECK(read_file(folder.file("late.gguf")).size() == 2);
  CHECK(code_of([&] { run(folder.file("in.gguf"), folder.file("absent/out.gguf"), "Q8_0"); }) ==
        "FILE_UNREADABLE");
}

// Runs with a limit on the size of files in place of a full disk.
std::string code_when_full(rlim_t most, const std::function<void()>& work) {
  struct rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit limited{most, before.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limited);
  std::string code = code_of(work);
  setrlimit(RLIMIT_FSIZE, &before);
  return code;
}

void check_failures_leave_nothing() {
  const Folder folder;
  const std::vector<std::string> input_alone{"in.gguf"};
  std::vector<std::byte> bytes = model().build();
  write_file(folder.file("in.gguf"), bytes);
  for (const rlim_t most : {rlim_t{0}, rlim_t{4096}, rlim_t{bytes.size() / 2}}) {
    const std::string code = code_when_full(
        most, [&] { run(folder.file("in.gguf"), folder.file("out.gguf"), "F32", 2); });
    CHECK(code == "DISK_FULL");
    CHECK(folder.names() == input_alone);
  }
  // Where space cannot be reserved the write itself finds out.
  const std::string code = code_when_full(4096, [&] {
    const quantize::OutputFile file(folder.file("out.gguf"), 0, false);
    file.write_at(0, std::vector<std::byte>(4000));
    file.write_at(4000, std::vector<std::byte>(4000));
  });
  CHECK(code == "DISK_FULL");
  CHECK(folder.names() == input_alone);
  const auto file = GgufFile::open(folder.file("in.gguf"));
  const QuantizePlan plan = plan_of(*file, "Q4_0");
  const std::atomic<bool> cancelled = true;
  CHECK(code_of([&] {
          quantize::run_quantization(*file, plan,
                                     {folder.file("out.gguf"), false, 2, {}, &cancelled});
        }) == "REQUEST_CANCELLED");
  CHECK(folder.names() == input_alone);
  // Cut short: the reader refuses it before anything is made.
  bytes.resize(bytes.size() - 100);
  write_file(folder.file("in.gguf"), bytes);
  CHECK(code_of([&] { run(folder.file("in.gguf"), folder.file("out.gguf"), "Q4_0"); }) ==
        "GGUF_INVALID");
  CHECK(folder.names() == input_alone);
}

void check_unfit_values() {
  const Folder folder;
  const std::vector<std::string> input_alone{"in.gguf"};
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  struct Case {
    float value;
    std::string_view scheme;
    bool refused;
  };
  for (const Case& of :
       {Case{kNan, "Q4_K", true}, Case{-kInf, "Q8_0", true}, Case{kNan, "BF16", true},
        Case{1e6f, "F16", true}, Case{-7e4f, "Q6_K", true}, Case{1e6f, "BF16", false},
        Case{65504.0f, "Q4_0", false}}) {
    testing::GgufBuilder builder;
    builder.text("general.architecture", "llama");
    builder.tensor("blk.0.ffn_up.weight", {256, 300}, TensorType::kF32);
    std::vector<std::byte> bytes = builder.build();
    const size_t at = bytes.size() - 4 * (256 * 300 - 70'000);
    std::memcpy(bytes.data() + at, &of.value, 4);
    write_file(folder.file("in.gguf"), bytes);
    std::string message;
    const std::string code =
        code_of([&] { run(folder.file("in.gguf"), folder.file("out.gguf"), of.scheme); }, &message);
    CHECK(code == (of.refused ? "GGUF_INVALID" : ""));
    if (of.refused) {
      CHECK(message.find("blk.0.ffn_up.weight") != std::string::npos);
      CHECK(message.find("70000") != std::string::npos);
      CHECK(folder.names() == input_alone);
    } else {
      fs::remove(folder.file("out.gguf"));
    }
  }
}

}  // namespace

int main() {
  check_recipe();
  check_tied_output();
  check_file();
  check_threads();
  check_split_model();
  check_existing_file();
  check_failures_leave_nothing();
  check_unfit_values();
  return testing::finish("quantize_file_test");
}
