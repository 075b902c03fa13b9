// No policy and no defaults: every field is read and every answer has all of its properties.
#include "addon/engine_values.h"

#include <cstring>

#include "addon/js_values.h"

namespace coxswain::addon {
namespace {

comm::TransportKind transport_of(Napi::Env env, const std::string& name) {
  for (const comm::TransportKind kind : {comm::TransportKind::kAuto, comm::TransportKind::kShm,
                                         comm::TransportKind::kTcp, comm::TransportKind::kGrpc}) {
    if (name == comm::transport_name(kind)) return kind;
  }
  throw Napi::TypeError::New(env, "unknown transport " + name);
}

}  // namespace

engine::EngineOptions to_engine_options(const Napi::Object& object) {
  engine::EngineOptions options;
  options.path = text_field(object, "path");
  options.topology = to_topology(object.Get("topology"));
  options.rank = static_cast<int>(number_field(object, "rank"));
  options.threads = static_cast<int>(number_field(object, "threads"));
  options.kv_blocks = static_cast<int64_t>(number_field(object, "kvBlocks"));
  options.slots_max = static_cast<int64_t>(number_field(object, "slotsMax"));
  options.step_rows_max = static_cast<int64_t>(number_field(object, "stepRowsMax"));
  options.share_cores = boolean_field(object, "shareCores");
  return options;
}

PageRequest to_save_request(const Napi::Object& object) {
  PageRequest request{};
  request.epoch = static_cast<uint64_t>(number_field(object, "epoch"));
  request.file.path = text_field(object, "path");
  request.file.offset = static_cast<uint64_t>(number_field(object, "offset"));
  const Napi::Value blocks = object.Get("blocks");
  if (!blocks.IsTypedArray() ||
      blocks.As<Napi::TypedArray>().TypedArrayType() != napi_uint32_array) {
    throw Napi::TypeError::New(object.Env(), "blocks is a Uint32Array");
  }
  const auto ids = blocks.As<Napi::Uint32Array>();
  request.blocks.assign(ids.Data(), ids.Data() + ids.ElementLength());
  return request;
}

PageRequest to_load_request(const Napi::Object& object) {
  PageRequest request = to_save_request(object);
  request.file.layers = static_cast<int64_t>(number_field(object, "fileLayers"));
  request.file.kv_heads = static_cast<int64_t>(number_field(object, "fileKvHeads"));
  const auto box = object.Get("box").As<Napi::Object>();
  const auto field = [&](const char* name) {
    return static_cast<int64_t>(number_field(box, name));
  };
  request.box = {field("fileLayer"), field("layer"), field("layers"),
                 field("fileHead"),  field("head"),  field("heads")};
  const auto bytes = object.Get("checksums").As<Napi::Uint8Array>();
  request.file.checksums.resize(bytes.ByteLength() / sizeof(uint64_t));
  std::memcpy(request.file.checksums.data(), bytes.Data(),
              request.file.checksums.size() * sizeof(uint64_t));
  return request;
}

Napi::Value saved_pages_of(Napi::Env env, const engine::PageFile& file) {
  Napi::Object saved = Napi::Object::New(env);
  saved.Set("fileLayers", static_cast<double>(file.layers));
  saved.Set("fileKvHeads", static_cast<double>(file.kv_heads));
  const size_t bytes = file.checksums.size() * sizeof(uint64_t);
  auto checksums = Napi::Uint8Array::New(env, bytes);
  if (bytes > 0) std::memcpy(checksums.Data(), file.checksums.data(), bytes);
  saved.Set("checksums", checksums);
  return saved;
}

comm::EpochSpec to_epoch_spec(const Napi::Object& object) {
  comm::EpochSpec spec;
  spec.epoch = static_cast<uint64_t>(number_field(object, "epoch"));
  spec.incarnation = text_field(object, "incarnation");
  spec.rank = static_cast<int>(number_field(object, "rank"));
  const auto key = object.Get("dataKey").As<Napi::Uint8Array>();
  spec.data_key.assign(reinterpret_cast<const char*>(key.Data()), key.ByteLength());
  spec.open_timeout_ns = static_cast<int64_t>(number_field(object, "openTimeoutMs") * 1e6);
  const auto links = object.Get("links").As<Napi::Array>();
  for (uint32_t i = 0; i < links.Length(); ++i) {
    const auto link = links.Get(i).As<Napi::Object>();
    comm::LinkSpec& made = spec.links.emplace_back();
    made.peer = static_cast<int>(number_field(link, "peer"));
    made.transport = transport_of(object.Env(), text_field(link, "transport"));
    made.host = text_field(link, "host");
    made.port = static_cast<uint16_t>(number_field(link, "port"));
  }
  return spec;
}

std::span<const std::byte> bytes_argument(const Napi::CallbackInfo& info, size_t index) {
  if (info.Length() <= index || !info[index].IsTypedArray()) {
    throw Napi::TypeError::New(info.Env(),
                               "argument " + std::to_string(index) + " is a Uint8Array");
  }
  const auto array = info[index].As<Napi::Uint8Array>();
  return {reinterpret_cast<const std::byte*>(array.Data()), array.ByteLength()};
}

int peer_argument(const Napi::CallbackInfo& info) {
  if (info.Length() < 1 || !info[0].IsNumber()) {
    throw Napi::TypeError::New(info.Env(), "the first argument is a peer's rank");
  }
  return info[0].As<Napi::Number>().Int32Value();
}

Napi::Value facts_of(Napi::Env env, const engine::EngineInfo& facts, uint16_t data_port) {
  Napi::Object result = Napi::Object::New(env);
  result.Set("fingerprint", facts.fingerprint);
  result.Set("planHash", facts.plan_hash);
  result.Set("numericsId", facts.numerics_id);
  result.Set("isa", facts.isa);
  result.Set("weightBytes", static_cast<double>(facts.weight_bytes));
  result.Set("kvBytes", static_cast<double>(facts.kv_bytes));
  result.Set("residentBytes", static_cast<double>(facts.resident_bytes));
  result.Set("context", static_cast<double>(facts.context));
  result.Set("vocab", static_cast<double>(facts.vocab));
  result.Set("loadMs", facts.load_ms);
  result.Set("dataPort", static_cast<double>(data_port));
  return Napi::Value(result);
}

Napi::Value links_of(Napi::Env env, const std::vector<comm::LinkReport>& reports) {
  Napi::Array list = Napi::Array::New(env, reports.size());
  for (size_t i = 0; i < reports.size(); ++i) {
    const comm::LinkReport& report = reports[i];
    Napi::Object link = Napi::Object::New(env);
    link.Set("peer", report.peer);
    link.Set("transport", comm::transport_name(report.transport));
    link.Set("interface", report.interface);
    link.Set("roundTripUs", report.round_trip_us);
    list.Set(static_cast<uint32_t>(i), link);
  }
  return Napi::Value(list);
}

Napi::Value progress_of(Napi::Env env, const engine::Progress& now) {
  Napi::Object result = Napi::Object::New(env);
  result.Set("epoch", static_cast<double>(now.epoch));
  result.Set("step", static_cast<double>(now.step));
  result.Set("item", static_cast<double>(now.item));
  result.Set("busy", now.busy);
  return result;
}

Napi::Value counters_of(Napi::Env env, const comm::DataPlane::Counters& now) {
  Napi::Object result = Napi::Object::New(env);
  result.Set("collectives", static_cast<double>(now.collectives));
  result.Set("bytesSent", static_cast<double>(now.bytes_sent));
  result.Set("bytesReceived", static_cast<double>(now.bytes_received));
  result.Set("waitNs", static_cast<double>(now.wait_ns));
  return result;
}

}  // namespace coxswain::addon
