// Range checks behind model_keys.h: every message names the key and the allowed range.
#include "weights/model_keys.h"

#include <cmath>

#include "base/error.h"
#include "weights/gguf_cursor.h"

namespace coxswain::weights {

void model_unsupported(const std::string& fact) { throw EngineError("MODEL_UNSUPPORTED", fact); }
void model_invalid(const std::string& fact) { throw EngineError("GGUF_INVALID", fact); }

int64_t ModelKeys::size(std::string_view key) const {
  const GgufValue* value = file_.find(full(key));
  const GgufArray* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  const int64_t number = array == nullptr ? file_.integer(full(key)) : uniform_element(key, *array);
  if (number < 1 || number > kMaxModelSize) {
    model_invalid("key " + quoted(full(key)) + " is " + std::to_string(number) +
                  ", which is not a size from 1 to " + std::to_string(kMaxModelSize));
  }
  return number;
}

int64_t ModelKeys::uniform_element(std::string_view key, const GgufArray& array) const {
  const auto first_of = [&](const auto& list) -> int64_t {
    if (list.empty()) model_invalid("key " + quoted(full(key)) + " is an empty list");
    for (const auto& element : list) {
      if (element != list[0]) {
        model_unsupported("the layers differ in " + quoted(full(key)) +
                          ", which this engine does not support");
      }
    }
    if (list[0] > static_cast<decltype(list[0] + 0)>(kMaxModelSize)) {
      model_invalid("key " + quoted(full(key)) + " holds a value that is too large");
    }
    return static_cast<int64_t>(list[0]);
  };
  if (const auto* u = std::get_if<std::vector<uint64_t>>(&array.values)) return first_of(*u);
  if (const auto* i = std::get_if<std::vector<int64_t>>(&array.values)) return first_of(*i);
  model_invalid("key " + quoted(full(key)) + " is not a list of whole numbers");
}

double ModelKeys::number_or(std::string_view key, double fallback, double least,
                            double most) const {
  const double value = file_.number_or(full(key), fallback);
  if (!std::isfinite(value) || value < least || value > most) {
    model_invalid("key " + quoted(full(key)) + " is " + std::to_string(value) +
                  ", which is outside " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

}  // namespace coxswain::weights
