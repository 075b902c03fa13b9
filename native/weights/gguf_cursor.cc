// Bounds checks and messages behind gguf_cursor.h.
#include "weights/gguf_cursor.h"

namespace coxswain::weights {

std::string quoted(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kLongest)) {
    const bool printable = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
    out.push_back(printable ? c : '?');
  }
  if (text.size() > kLongest) out += "...";
  out.push_back('"');
  return out;
}

std::string_view GgufCursor::read_string(uint64_t longest) {
  const uint64_t length = read<uint64_t>();
  if (length > remaining()) {
    invalid("a string of " + std::to_string(length) + " bytes does not fit into the " +
            std::to_string(remaining()) + " bytes that are left");
  }
  if (length > longest) {
    invalid("a string of " + std::to_string(length) + " bytes is longer than the allowed " +
            std::to_string(longest));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + position_),
                              static_cast<size_t>(length));
  position_ += static_cast<size_t>(length);
  return text;
}

void GgufCursor::need(uint64_t count) const {
  if (count > remaining()) {
    invalid("the file ends here, " + std::to_string(count) +
            " more bytes are needed (is it cut short?)");
  }
}

void GgufCursor::fail(const char* code, const std::string& fact) const {
  throw EngineError(
      code, quoted(file_) + ", byte " + std::to_string(position_) + ", " + subject_ + ": " + fact);
}

}  // namespace coxswain::weights
