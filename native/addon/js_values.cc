// Conversions behind js_values.h. Text from files is checked before it becomes a JavaScript string:
// V8 would replace bytes that are no valid UTF-8.
#include "addon/js_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coxswain::addon {
namespace {

constexpr double kMaxSafe = 9007199254740991.0;

// RFC 3629: shortest forms only, no surrogates, nothing above U+10FFFF.
bool valid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t extra = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || i + extra >= text.size()) return false;
    for (size_t j = 1; j <= extra; ++j) {
      if ((byte(i + j) & 0xc0) != 0x80) return false;
    }
    const unsigned second = byte(i + 1);
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += extra + 1;
  }
  return true;
}

template <typename Integer>
Napi::Value integers(Napi::Env env, const std::vector<Integer>& list) {
  using Narrow = std::conditional_t<std::is_signed_v<Integer>, int32_t, uint32_t>;
  const bool fits = std::all_of(list.begin(), list.end(), [](Integer v) {
    return v >= std::numeric_limits<Narrow>::min() && v <= std::numeric_limits<Narrow>::max();
  });
  if (fits) {
    auto array = Napi::TypedArrayOf<Narrow>::New(env, list.size());
    std::transform(list.begin(), list.end(), array.Data(),
                   [](Integer v) { return static_cast<Narrow>(v); });
    return array;
  }
  auto array = Napi::Array::New(env, list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    array.Set(static_cast<uint32_t>(i), to_js_integer(env, list[i]));
  }
  return array;
}

Napi::Value to_js(Napi::Env env, const std::vector<uint64_t>& list) { return integers(env, list); }
Napi::Value to_js(Napi::Env env, const std::vector<int64_t>& list) { return integers(env, list); }
Napi::Value to_js(Napi::Env env, const std::vector<double>& list) {
  auto array = Napi::Float64Array::New(env, list.size());
  std::copy(list.begin(), list.end(), array.Data());
  return array;
}
Napi::Value to_js(Napi::Env env, const std::vector<bool>& list) {
  auto array = Napi::Array::New(env, list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    array.Set(static_cast<uint32_t>(i), Napi::Boolean::New(env, list[i]));
  }
  return array;
}
Napi::Value to_js(Napi::Env env, const std::vector<std::string>& list) {
  auto array = Napi::Array::New(env, list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Napi::HandleScope scope(env);  // vocabularies have 250,000 of them
    array.Set(static_cast<uint32_t>(i), to_js_text(env, list[i]));
  }
  return array;
}

Napi::Value to_js(Napi::Env env, uint64_t value) { return to_js_integer(env, value); }
Napi::Value to_js(Napi::Env env, int64_t value) { return to_js_integer(env, value); }
Napi::Value to_js(Napi::Env env, double value) { return Napi::Number::New(env, value); }
Napi::Value to_js(Napi::Env env, bool value) { return Napi::Boolean::New(env, value); }
Napi::Value to_js(Napi::Env env, const std::string& value) { return to_js_text(env, value); }

[[noreturn]] void wrong_field(Napi::Env env, const char* name, const char* kind) {
  throw Napi::TypeError::New(env, std::string("field ") + name + " is not " + kind);
}

int64_t to_integer(const Napi::Value& value, const char* name) {
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue()
                                         : std::numeric_limits<double>::quiet_NaN();
  if (!(std::fabs(number) <= kMaxSafe) || number != std::floor(number)) {
    wrong_field(value.Env(), name, "a whole number");
  }
  return static_cast<int64_t>(number);
}

Napi::Array array_field(const Napi::Object& object, const char* name) {
  const Napi::Value value = object.Get(name);
  if (!value.IsArray()) wrong_field(object.Env(), name, "an array");
  return value.As<Napi::Array>();
}

}  // namespace

Napi::Value to_js_text(Napi::Env env, std::string_view text) {
  if (valid_utf8(text)) return Napi::String::New(env, text.data(), text.size());
  return Napi::Buffer<char>::Copy(env, text.data(), text.size());
}

Napi::Value to_js_integer(Napi::Env env, uint64_t value) {
  if (value <= static_cast<uint64_t>(kMaxSafe)) {
    return Napi::Number::New(env, static_cast<double>(value));
  }
  return Napi::BigInt::New(env, value);
}

Napi::Value to_js_integer(Napi::Env env, int64_t value) {
  if (std::abs(static_cast<double>(value)) <= kMaxSafe) {
    return Napi::Number::New(env, static_cast<double>(value));
  }
  return Napi::BigInt::New(env, value);
}

Napi::Value to_js_value(Napi::Env env, const weights::GgufValue& value) {
  if (const auto* scalar = std::get_if<weights::GgufScalar>(&value)) {
    return std::visit([&](const auto& v) { return to_js(env, v); }, *scalar);
  }
  return std::visit([&](const auto& list) { return to_js(env, list); },
                    std::get<weights::GgufArray>(value).values);
}

weights::Topology to_topology(const Napi::Value& value) {
  if (!value.IsObject()) wrong_field(value.Env(), "topology", "an object");
  const Napi::Object object = value.As<Napi::Object>();
  weights::Topology topology;
  const Napi::Array split = array_field(object, "split");
  for (uint32_t i = 0; i < split.Length(); ++i) {
    const Napi::Value weight = split.Get(i);
    if (!weight.IsNumber()) wrong_field(object.Env(), "split", "an array of numbers");
    topology.split.push_back(weight.As<Napi::Number>().DoubleValue());
  }
  topology.pp =
      static_cast<int>(std::clamp<int64_t>(to_integer(object.Get("pp"), "pp"), 0, 1 << 20));
  const Napi::Array layers = array_field(object, "layers");
  for (uint32_t i = 0; i < layers.Length(); ++i) {
    const Napi::Value range = layers.Get(i);
    if (!range.IsArray() || range.As<Napi::Array>().Length() != 2) {
      wrong_field(object.Env(), "layers", "an array of pairs");
    }
    const Napi::Array pair = range.As<Napi::Array>();
    topology.layers.emplace_back(to_integer(pair.Get(uint32_t{0}), "layers"),
                                 to_integer(pair.Get(uint32_t{1}), "layers"));
  }
  const std::string kv_type = text_field(object, "kvType");
  if (kv_type != "f32" && kv_type != "f16") wrong_field(object.Env(), "kvType", "f32 or f16");
  topology.kv_type = kv_type == "f32" ? 0 : 1;
  topology.exact = boolean_field(object, "exact");
  topology.context = to_integer(object.Get("context"), "context");
  return topology;
}

std::string text_field(const Napi::Object& object, const char* name) {
  const Napi::Value value = object.Get(name);
  if (!value.IsString()) wrong_field(object.Env(), name, "a string");
  return value.As<Napi::String>().Utf8Value();
}

double number_field(const Napi::Object& object, const char* name) {
  const Napi::Value value = object.Get(name);
  if (!value.IsNumber()) wrong_field(object.Env(), name, "a number");
  return value.As<Napi::Number>().DoubleValue();
}

bool boolean_field(const Napi::Object& object, const char* name) {
  const Napi::Value value = object.Get(name);
  if (!value.IsBoolean()) wrong_field(object.Env(), name, "a boolean");
  return value.As<Napi::Boolean>().Value();
}

}  // namespace coxswain::addon
