// inspect(path), readMetadata(path), plan(path, topology): what TypeScript knows of model files.
// Each opens the file anew and holds nothing afterwards. The objects' types: src/base/addon.ts.
#include "addon/async_task.h"
#include "addon/js_values.h"
#include "addon/registry.h"
#include "base/host_memory.h"
#include "weights/admission.h"
#include "weights/gguf.h"
#include "weights/plan.h"

namespace coxswain::addon {
namespace {

using weights::GgufFile;

std::string path_argument(const Napi::CallbackInfo& info) {
  if (info.Length() < 1 || !info[0].IsString()) {
    throw Napi::TypeError::New(info.Env(), "the first argument is the path of a model file");
  }
  return info[0].As<Napi::String>().Utf8Value();
}

Napi::Value count_of(Napi::Env env, uint64_t value) {
  return Napi::Number::New(env, static_cast<double>(value));
}
Napi::Value count_of(Napi::Env env, int64_t value) {
  return Napi::Number::New(env, static_cast<double>(value));
}

// --- inspect
// ------------------------------------------------------------------------------------------

struct Inspection {
  std::shared_ptr<const GgufFile> file;
  std::string fingerprint;
  std::optional<weights::ModelShape> shape;
  Failure problem;  // why there is no shape
};

Inspection inspect_file(const std::string& path) {
  Inspection result;
  result.file = GgufFile::open(path);
  result.fingerprint = result.file->fingerprint();
  try {
    result.shape = weights::read_model_shape(*result.file);
  } catch (const EngineError&) {
    result.problem = current_failure();
  }
  return result;
}

Napi::Object shape_object(Napi::Env env, const weights::ModelShape& shape) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("layers", count_of(env, shape.layers));
  object.Set("hidden", count_of(env, shape.hidden));
  object.Set("heads", count_of(env, shape.heads));
  object.Set("kvHeads", count_of(env, shape.kv_heads));
  object.Set("headDim", count_of(env, shape.head_dim));
  object.Set("ffn", count_of(env, shape.ffn));
  object.Set("vocab", count_of(env, shape.vocab));
  object.Set("context", count_of(env, shape.context));
  object.Set("tiedOutput", Napi::Boolean::New(env, shape.tied_output));
  return object;
}

Napi::Array tensor_list(Napi::Env env, const GgufFile& file) {
  Napi::Array list = Napi::Array::New(env, file.tensors().size());
  uint32_t index = 0;
  for (const weights::TensorInfo& tensor : file.tensors()) {
    const Napi::HandleScope scope(env);
    Napi::Array dims = Napi::Array::New(env, static_cast<size_t>(tensor.dim_count));
    for (int i = 0; i < tensor.dim_count; ++i) {
      dims.Set(static_cast<uint32_t>(i), count_of(env, tensor.dims[static_cast<size_t>(i)]));
    }
    Napi::Object object = Napi::Object::New(env);
    object.Set("name", to_js_text(env, tensor.name));
    object.Set("type", Napi::String::New(env, std::string(traits_of(tensor.type).name)));
    object.Set("dims", dims);
    object.Set("bytes", count_of(env, uint64_t{tensor.bytes}));
    list.Set(index++, object);
  }
  return list;
}

Napi::Value inspection_object(Napi::Env env, const Inspection& result) {
  const GgufFile& file = *result.file;
  Napi::Object object = Napi::Object::New(env);
  object.Set("fileBytes", count_of(env, file.file_bytes()));
  object.Set("fingerprint", Napi::String::New(env, result.fingerprint));
  object.Set("architecture", to_js_text(env, file.string_or("general.architecture", "")));
  object.Set("name", to_js_text(env, file.string_or("general.name", "")));
  object.Set("tensors", tensor_list(env, file));
  if (result.shape) {
    object.Set("shape", shape_object(env, *result.shape));
    object.Set("problem", env.Null());
  } else {
    Napi::Object problem = Napi::Object::New(env);
    problem.Set("code", Napi::String::New(env, result.problem.code));
    problem.Set("message", Napi::String::New(env, result.problem.message));
    object.Set("shape", env.Null());
    object.Set("problem", problem);
  }
  return object;
}

Napi::Value inspect(const Napi::CallbackInfo& info) {
  const std::string path = path_argument(info);
  return AsyncTask<Inspection>::start(
      info.Env(), [path] { return inspect_file(path); },
      [](Napi::Env env, Inspection&& result) { return inspection_object(env, result); });
}

// --- readMetadata
// -------------------------------------------------------------------------------------

// [[key, value], ...]: TypeScript makes a Map of it, since a file may name a key "__proto__".
Napi::Value metadata_entries(Napi::Env env, const GgufFile& file) {
  Napi::Array list = Napi::Array::New(env, file.metadata().size());
  uint32_t index = 0;
  for (const auto& [key, value] : file.metadata()) {
    const Napi::HandleScope scope(env);
    Napi::Array entry = Napi::Array::New(env, 2);
    entry.Set(uint32_t{0}, Napi::String::New(env, key));
    entry.Set(uint32_t{1}, to_js_value(env, value));
    list.Set(index++, entry);
  }
  return list;
}

Napi::Value read_metadata(const Napi::CallbackInfo& info) {
  using File = std::shared_ptr<const GgufFile>;
  const std::string path = path_argument(info);
  return AsyncTask<File>::start(
      info.Env(), [path] { return GgufFile::open(path); },
      [](Napi::Env env, File&& file) { return metadata_entries(env, *file); });
}

// --- plan
// ---------------------------------------------------------------------------------------------

struct Planned {
  weights::ShardPlan plan;
  weights::MemoryAdmission memory;
};

Napi::Array range_of(Napi::Env env, int64_t begin, int64_t end) {
  Napi::Array range = Napi::Array::New(env, 2);
  range.Set(uint32_t{0}, count_of(env, begin));
  range.Set(uint32_t{1}, count_of(env, end));
  return range;
}

// Counts under the names of `cox plan --json`; the half-open ranges beside them.
Napi::Object share_object(Napi::Env env, const weights::RankShare& share) {
  Napi::Object object = Napi::Object::New(env);
  Napi::Object ranges = Napi::Object::New(env);
  const auto put = [&](const char* name, int64_t begin, int64_t end) {
    object.Set(name, count_of(env, end - begin));
    ranges.Set(name, range_of(env, begin, end));
  };
  object.Set("rank", count_of(env, int64_t{share.rank}));
  object.Set("stage", count_of(env, int64_t{share.stage}));
  object.Set("tp_index", count_of(env, int64_t{share.tp_index}));
  put("layers", share.layer_begin, share.layer_end);
  put("heads", share.head_begin, share.head_end);
  put("kv_heads", share.kv_head_begin, share.kv_head_end);
  put("ffn_columns", share.ffn_begin, share.ffn_end);
  put("vocab_rows", share.vocab_begin, share.vocab_end);
  object.Set("ranges", ranges);
  object.Set("weight_bytes", count_of(env, share.weight_bytes));
  object.Set("kv_bytes_per_token", count_of(env, share.kv_bytes_per_token));
  return object;
}

Napi::Value plan_object(Napi::Env env, const Planned& planned) {
  const weights::ShardPlan& plan = planned.plan;
  Napi::Object object = Napi::Object::New(env);
  Napi::Array ranks = Napi::Array::New(env, plan.ranks.size());
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    ranks.Set(static_cast<uint32_t>(i), share_object(env, plan.ranks[i]));
  }
  Napi::Array layers = Napi::Array::New(env);
  for (size_t i = 0; i < plan.topology.layers.size(); ++i) {
    const auto& [first, last] = plan.topology.layers[i];
    layers.Set(static_cast<uint32_t>(i), range_of(env, first, last));
  }
  Napi::Object per_token = Napi::Object::New(env);
  per_token.Set("collectives", count_of(env, plan.collectives_per_token));
  per_token.Set("wire_bytes", count_of(env, plan.wire_bytes_per_token));
  Napi::Object memory = Napi::Object::New(env);
  memory.Set("installed", count_of(env, planned.memory.installed));
  memory.Set("admitted", count_of(env, planned.memory.admitted));
  memory.Set("needed", count_of(env, planned.memory.needed));
  memory.Set("largest_model", count_of(env, planned.memory.largest_model));
  object.Set("ranks", ranks);
  object.Set("tp", count_of(env, int64_t{plan.tp}));
  object.Set("pp", count_of(env, int64_t{plan.pp}));
  object.Set("layers", layers);
  object.Set("context", count_of(env, plan.topology.context));
  object.Set("per_token", per_token);
  object.Set("memory", memory);
  object.Set("hash", Napi::String::New(env, plan.hash));
  object.Set("refused", plan.refused ? Napi::Value(Napi::String::New(env, *plan.refused))
                                     : Napi::Value(env.Null()));
  return object;
}

Napi::Value plan(const Napi::CallbackInfo& info) {
  const std::string path = path_argument(info);
  const weights::Topology topology =
      to_topology(info.Length() > 1 ? Napi::Value(info[1]) : info.Env().Undefined());
  return AsyncTask<Planned>::start(
      info.Env(),
      [path, topology] {
        const std::shared_ptr<const GgufFile> file = GgufFile::open(path);
        weights::ShardPlan made = weights::make_plan(*file, topology);
        const weights::MemoryAdmission memory =
            weights::admit(made, file->file_bytes(), host_memory());
        return Planned{std::move(made), memory};
      },
      [](Napi::Env env, Planned&& planned) { return plan_object(env, planned); });
}

}  // namespace

void register_inspect(Napi::Env env, Napi::Object exports) {
  exports.Set("inspect", Napi::Function::New(env, inspect, "inspect"));
  exports.Set("readMetadata", Napi::Function::New(env, read_metadata, "readMetadata"));
  exports.Set("plan", Napi::Function::New(env, plan, "plan"));
}

}  // namespace coxswain::addon
