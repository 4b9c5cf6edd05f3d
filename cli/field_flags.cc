#include "cli/field_flags.h"

#include <cctype>
#include <string_view>

namespace runnel {
namespace {

struct FieldFlag {
  std::string_view field, flag;
};

// Names that are no words of English: replaced wherever they stand.
constexpr FieldFlag kNames[] = {{"sampling.temperature", "--temperature"},
                                {"sampling.top_k", "--top-k"},
                                {"sampling.top_p", "--top-p"},
                                {"sampling.min_p", "--min-p"},
                                {"sampling.greedy", "--greedy"},
                                {"top_p", "--top-p"},
                                {"min_p", "--min-p"},
                                {"max_values", "--max-values"},
                                {"max_queue_time", "--max-queue-time"},
                                {"top_log_probs", "--top-log-probs"},
                                {"stop_text", "--stop"}};
// Words of English: replaced where the message, after the status's name, begins with one.
constexpr FieldFlag kWords[] = {
    {"samples", "--count"}, {"prompt", "--values"}, {"keep", "--keep"}, {"text", "--prompt"}};

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

bool stands_alone(std::string_view text, size_t at, size_t size) {
  return (at == 0 || !is_name_char(text[at - 1])) &&
         (at + size == text.size() || !is_name_char(text[at + size]));
}

}  // namespace

std::string in_flags(std::string message) {
  const size_t colon = message.find(": ");
  const size_t begin = colon == std::string::npos ? 0 : colon + 2;
  for (const auto& [word, flag] : kWords) {
    if (message.compare(begin, word.size(), word) != 0) continue;
    if (stands_alone(message, begin, word.size())) message.replace(begin, word.size(), flag);
    break;
  }
  for (const auto& [name, flag] : kNames) {
    for (size_t at = message.find(name); at != std::string::npos; at = message.find(name, at)) {
      const bool alone = stands_alone(message, at, name.size());
      if (alone) message.replace(at, name.size(), flag);
      at += alone ? flag.size() : name.size();
    }
  }
  return message;
}

}  // namespace runnel
