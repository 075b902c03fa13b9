// The GGUF reader: what a good file gives, and one refusal for every rule a bad one can break.
#include "weights/gguf.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "check.h"
#include "gguf_builder.h"

using namespace coxswain;
using namespace coxswain::weights;
using coxswain::testing::GgufBuilder;

namespace {

using Bytes = std::vector<std::byte>;

std::shared_ptr<const GgufFile> parse(const Bytes& bytes) {
  return GgufFile::parse(bytes, "t.gguf");
}

GgufBuilder small_model() {
  GgufBuilder builder;
  builder.text("general.architecture", "llama")
      .u32("a.u32", 7)
      .u64("a.u64", 1ull << 40)
      .i32("a.i32", -5)
      .f32("a.f32", 0.5f)
      .boolean("a.bool", 1)
      .texts("a.texts", {"x", "", "\xff\xfe"})
      .array<float>("a.floats", 6, {1.5f, 2.5f})
      .tensor("first", {64, 3}, TensorType::kF32)
      .tensor("second", {256, 2, 2}, TensorType::kQ4_K, 2)
      .tensor("third", {5}, TensorType::kF16, 3);
  return builder;
}

// True when parsing fails with `code` and a message that holds `part`.
bool refuses(const Bytes& bytes, const std::string& code, const std::string& part) {
  try {
    parse(bytes);
  } catch (const EngineError& error) {
    if (error.code() == code && std::string(error.what()).find(part) != std::string::npos)
      return true;
    std::fprintf(stderr, "got %s: %s\n", error.code().c_str(), error.what());
    return false;
  }
  std::fprintf(stderr, "was accepted\n");
  return false;
}
bool invalid(const GgufBuilder& builder, const std::string& part) {
  return refuses(builder.build(), "GGUF_INVALID", part);
}
bool unsupported(const GgufBuilder& builder, const std::string& part) {
  return refuses(builder.build(), "GGUF_UNSUPPORTED", part);
}

void good_files() {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = small_model();
    builder.version = version;
    const Bytes bytes = builder.build();
    const auto file = parse(bytes);
    CHECK(file->metadata().size() == 8);
    CHECK(file->integer("a.u32") == 7);
    CHECK(file->integer("a.u64") == int64_t{1} << 40);
    CHECK(file->integer("a.i32") == -5);
    CHECK(file->number_or("a.f32", 0) == 0.5);
    CHECK(file->number_or("a.u32", 0) == 7);
    CHECK(file->boolean_or("a.bool", false));
    CHECK(file->string("general.architecture") == "llama");
    CHECK(file->integer_or("absent", 9) == 9);
    CHECK(file->string_or("absent", "x") == "x");
    CHECK(std::get<GgufArray>(*file->find("a.texts")).size() == 3);
    CHECK(file->tensors().size() == 3);
    const TensorInfo& second = file->tensor("second");
    CHECK(second.rows() == 4 && second.row_bytes == 144 && second.bytes == 576);
    CHECK(second.dim_count == 3 && second.dims[2] == 2 && second.dims[3] == 1);
    CHECK(file->find_tensor("fourth") == nullptr);
    CHECK(file->file_bytes() == bytes.size());
    CHECK(second.data + second.bytes <= bytes.data() + bytes.size());
  }
}

void look_ups_refuse_other_types() {
  const Bytes bytes = small_model().build();
  const auto file = parse(bytes);
  const auto fails = [&](auto&& look_up, const std::string& key) {
    try {
      look_up();
    } catch (const EngineError& error) {
      return error.code() == "GGUF_INVALID" &&
             std::string(error.what()).find(key) != std::string::npos;
    }
    return false;
  };
  CHECK(fails([&] { file->integer("a.f32"); }, "a.f32"));
  CHECK(fails([&] { file->integer("absent"); }, "absent"));
  CHECK(fails([&] { file->integer("a.texts"); }, "a.texts"));
  CHECK(fails([&] { file->string("a.u32"); }, "a.u32"));
  CHECK(fails([&] { file->boolean_or("a.u32", false); }, "a.u32"));
  CHECK(fails([&] { file->number_or("a.bool", 0); }, "a.bool"));
  CHECK(fails([&] { file->tensor("absent"); }, "absent"));
}

void headers() {
  CHECK(refuses({}, "GGUF_INVALID", "not a GGUF file"));
  Bytes bytes = small_model().build();
  Bytes wrong_magic = bytes;
  wrong_magic[3] = std::byte{'X'};
  CHECK(refuses(wrong_magic, "GGUF_INVALID", "not a GGUF file"));
  GgufBuilder builder = small_model();
  builder.version = 1;
  CHECK(unsupported(builder, "version 1"));
  builder.version = 4;
  CHECK(unsupported(builder, "version 4"));
  builder.version = 0x03000000;
  CHECK(unsupported(builder, "big-endian"));
  builder.version = 3;
  builder.extra_keys = int64_t{1} << 60;
  CHECK(invalid(builder, "keys do not fit"));
  builder.extra_keys = 0;
  builder.extra_tensors = int64_t{1} << 60;
  CHECK(invalid(builder, "tensors do not fit"));
}

// Every proper prefix of a file is refused, whatever field it ends in.
void truncations() {
  const Bytes bytes = small_model().build();
  bool all = true;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Bytes prefix(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    try {
      parse(prefix);
      all = false;
    } catch (const EngineError& error) {
      all = all && error.code() == "GGUF_INVALID";
    }
  }
  CHECK(all);
}

void keys() {
  CHECK(invalid(small_model().u32("a.u32", 1), "\"a.u32\": the key occurs twice"));
  CHECK(invalid(GgufBuilder().u32("", 1), "the key is empty"));
  CHECK(invalid(GgufBuilder().boolean("b", 2), "not 0 or 1"));
  CHECK(invalid(GgufBuilder().raw("x", 13, {0}), "value type 13"));
  CHECK(
      invalid(GgufBuilder().raw("x", 9, {13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), "element type 13"));
  CHECK(unsupported(GgufBuilder().raw("x", 9, {9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}),
                    "arrays of arrays"));
  // An array and a string that claim more than the file holds.
  CHECK(invalid(GgufBuilder().raw("x", 9, {4, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 127}),
                "do not fit"));
  CHECK(
      invalid(GgufBuilder().raw("x", 8, {255, 255, 255, 255, 255, 255, 255, 255}), "does not fit"));
  CHECK(invalid(
      GgufBuilder().raw("x", 9, {8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0}),
      "does not fit"));
  CHECK(invalid(GgufBuilder().u32("general.alignment", 24), "power of two"));
  CHECK(invalid(GgufBuilder().u32("general.alignment", 4), "power of two"));
  CHECK(invalid(GgufBuilder().u32("general.alignment", 0), "power of two"));
  CHECK(invalid(GgufBuilder().text("general.alignment", "x"), "not an unsigned number"));
  // Names out of the file cannot write control characters into a log.
  CHECK(invalid(GgufBuilder().boolean("a\x1b[31m\n", 2), "\"a?[31m?\""));
}

void tensors() {
  CHECK(invalid(small_model().tensor("first", {8}, TensorType::kF32),
                "\"first\": the tensor occurs twice"));
  CHECK(invalid(GgufBuilder().tensor("", {8}, TensorType::kF32), "name is empty"));
  CHECK(invalid(GgufBuilder().tensor(std::string(64, 'n'), {8}, TensorType::kF32),
                "longer than the allowed 63"));
  CHECK(invalid(GgufBuilder().entry("t", {}, 0, 0), "1 to 4 dimensions"));
  CHECK(invalid(GgufBuilder().entry("t", {1, 1, 1, 1, 1}, 0, 0), "1 to 4 dimensions"));
  CHECK(invalid(GgufBuilder().entry("t", {4, 0}, 0, 0), "dimension 1 is 0"));
  CHECK(invalid(GgufBuilder().entry("t", {-1}, 0, 0), "63 bits"));
  CHECK(invalid(GgufBuilder().entry("t", {int64_t{1} << 32, int64_t{1} << 32}, 0, 0), "63 bits"));
  CHECK(invalid(GgufBuilder().entry("t", {int64_t{1} << 62, 1}, 0, 0), "64 bits"));
  CHECK(invalid(GgufBuilder().entry("t", {100}, 12, 0), "no multiple of the 256 elements"));
  CHECK(unsupported(GgufBuilder().entry("t", {256}, 19, 0), "\"t\": type IQ1_S"));
  CHECK(unsupported(GgufBuilder().entry("t", {256}, 26, 0), "I32"));
  CHECK(invalid(GgufBuilder().entry("t", {256}, 4, 0), "type id 4 does not exist"));
  CHECK(invalid(GgufBuilder().entry("t", {256}, 999, 0), "type id 999"));
  CHECK(invalid(small_model().entry("t", {8}, 0, 4), "no multiple of the alignment 32"));
  CHECK(invalid(small_model().entry("t", {8}, 0, 1u << 20), "end beyond"));
  CHECK(invalid(small_model().entry("t", {8}, 0, ~uint64_t{0} - 31), "end beyond"));
  CHECK(invalid(small_model().entry("t", {8}, 0, 0), "overlap those of tensor \"first\""));
  CHECK(invalid(small_model().entry("t", {8}, 0, 64), "overlap those of tensor \"first\""));
}

void alignments() {
  for (const uint64_t alignment : {8u, 64u, 4096u}) {
    GgufBuilder builder;
    builder.alignment = alignment;
    builder.u64("general.alignment", alignment)
        .tensor("a", {3}, TensorType::kF32)
        .tensor("b", {5}, TensorType::kF32);
    const Bytes bytes = builder.build();
    const auto file = parse(bytes);
    CHECK(static_cast<size_t>(file->tensor("a").data - bytes.data()) % alignment == 0);
    CHECK(file->tensor("b").data - file->tensor("a").data ==
          static_cast<std::ptrdiff_t>(alignment < 12 ? 16 : alignment));
  }
}

// --- split models
// ------------------------------------------------------------------------------------

GgufBuilder part(uint16_t index, uint16_t count, int32_t total) {
  GgufBuilder builder;
  if (index == 0) builder.text("general.architecture", "llama").u32("a.u32", 7);
  builder.u16("split.no", index).u16("split.count", count).i32("split.tensors.count", total);
  return builder;
}

struct Folder {
  std::string path;
  Folder() {
    std::string pattern = "/tmp/coxswain-gguf-" + std::string(6, 'X');
    path = mkdtemp(pattern.data());
  }
  ~Folder() {
    for (const std::string& name : names) std::remove((path + "/" + name).c_str());
    rmdir(path.c_str());
  }
  std::string write(const std::string& name, const Bytes& bytes) {
    std::ofstream out(path + "/" + name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    names.push_back(name);
    return path + "/" + name;
  }
  std::vector<std::string> names;
};

bool open_fails(const std::string& path, const std::string& code, const std::string& text) {
  try {
    GgufFile::open(path);
  } catch (const EngineError& error) {
    if (error.code() == code && std::string(error.what()).find(text) != std::string::npos)
      return true;
    std::fprintf(stderr, "got %s: %s\n", error.code().c_str(), error.what());
  }
  return false;
}

void split_models() {
  Folder folder;
  folder.write("m-00001-of-00003.gguf", part(0, 3, 2).build());
  folder.write("m-00002-of-00003.gguf",
               part(1, 3, 2).tensor("a", {64}, TensorType::kF32, 1).build());
  const std::string third = folder.write(
      "m-00003-of-00003.gguf", part(2, 3, 2).tensor("b", {64}, TensorType::kF32, 2).build());
  for (const char* name :
       {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto file = GgufFile::open(folder.path + "/" + name);
    CHECK(file->tensors().size() == 2);
    CHECK(file->integer("a.u32") == 7);
    CHECK(file->tensor("b").file_index == 2);
  }
  const std::string whole = folder.write("whole.gguf", GgufBuilder()
                                                           .tensor("b", {64}, TensorType::kF32, 2)
                                                           .tensor("a", {64}, TensorType::kF32, 1)
                                                           .u32("a.u32", 7)
                                                           .text("general.architecture", "llama")
                                                           .build());
  const std::string fingerprint = GgufFile::open(whole)->fingerprint();
  CHECK(GgufFile::open(third)->fingerprint() == fingerprint);
  CHECK(fingerprint.size() == 64);

  std::remove((folder.path + "/m-00002-of-00003.gguf").c_str());
  CHECK(open_fails(third, "FILE_UNREADABLE", "m-00002-of-00003.gguf"));
  const std::string renamed = folder.write("renamed.gguf", part(0, 3, 2).build());
  CHECK(open_fails(renamed, "GGUF_INVALID", "-NNNNN-of-NNNNN.gguf"));
  CHECK(open_fails(folder.path, "FILE_UNREADABLE", "directory"));
  CHECK(open_fails(folder.path + "/absent.gguf", "FILE_UNREADABLE", "absent.gguf"));
}

bool parts_fail(const std::vector<Bytes>& parts, const std::string& text) {
  std::vector<std::span<const std::byte>> spans;
  std::vector<std::string> names;
  for (const Bytes& bytes : parts) {
    spans.emplace_back(bytes);
    names.push_back("part " + std::to_string(names.size() + 1));
  }
  try {
    GgufFile::parse_parts(spans, names);
  } catch (const EngineError& error) {
    if (error.code() == "GGUF_INVALID" &&
        std::string(error.what()).find(text) != std::string::npos) {
      return true;
    }
    std::fprintf(stderr, "got %s: %s\n", error.code().c_str(), error.what());
  }
  return false;
}

void bad_split_sets() {
  const auto a = [](int32_t total) { return part(0, 2, total).tensor("a", {8}, TensorType::kF32); };
  const auto b = [](uint16_t no, uint16_t count, const char* name) {
    return part(no, count, 2).tensor(name, {8}, TensorType::kF32);
  };
  CHECK(!parts_fail({a(2).build(), b(1, 2, "b").build()}, ""));
  CHECK(parts_fail({a(2).build(), b(1, 2, "a").build()}, "\"a\" occurs in an earlier part"));
  CHECK(parts_fail({a(2).build(), b(0, 2, "b").build()}, "split.no is 0"));
  CHECK(parts_fail({a(2).build(), b(1, 3, "b").build()}, "split.count is 3"));
  CHECK(parts_fail({a(3).build(), b(1, 2, "b").build()}, "split.tensors.count differs"));
  CHECK(parts_fail({part(0, 2, 2).build(), b(1, 2, "b").build()}, "hold 1 tensors"));
  CHECK(parts_fail({a(2).build()}, "the others are needed"));
  CHECK(parts_fail({GgufBuilder().text("split.count", "x").build()}, "split.count"));
}

void fingerprints() {
  const Bytes plain = small_model().build();
  const std::string fingerprint = parse(plain)->fingerprint();
  CHECK(parse(plain)->fingerprint() == fingerprint);
  const auto differs = [&](const Bytes& bytes) {
    return parse(bytes)->fingerprint() != fingerprint;
  };
  CHECK(differs(small_model().u32("more", 1).build()));
  CHECK(differs(small_model().tensor("more", {1}, TensorType::kF32).build()));
  Bytes last_byte = plain;
  last_byte.back() = std::byte{99};
  CHECK(differs(last_byte));
}

}  // namespace

int main() {
  good_files();
  look_ups_refuse_other_types();
  headers();
  truncations();
  keys();
  tensors();
  alignments();
  split_models();
  bad_split_sets();
  fingerprints();
  return coxswain::testing::finish("weights_gguf_test");
}
