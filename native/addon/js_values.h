// Between JavaScript values and C++ ones. Wrong JavaScript arguments are bugs of our own TypeScript
// and throw TypeErrors naming the field.
#pragma once
#include <napi.h>

#include <string>
#include <string_view>

#include "weights/gguf.h"
#include "weights/plan.h"

namespace coxswain::addon {

// A string, or a Buffer when the bytes are no valid UTF-8.
Napi::Value to_js_text(Napi::Env env, std::string_view text);
// A number, or a BigInt beyond 2^53.
Napi::Value to_js_integer(Napi::Env env, uint64_t value);
Napi::Value to_js_integer(Napi::Env env, int64_t value);
// Lists of numbers become typed arrays where all elements fit (Uint32, Int32, Float64).
Napi::Value to_js_value(Napi::Env env, const weights::GgufValue& value);

// {split, pp, layers, kvType, exact, context} of src/engine/engine.ts.
weights::Topology to_topology(const Napi::Value& value);

// Fields of an object; a missing or wrong one is a TypeError that names it.
std::string text_field(const Napi::Object& object, const char* name);
double number_field(const Napi::Object& object, const char* name);
bool boolean_field(const Napi::Object& object, const char* name);

}  // namespace coxswain::addon
