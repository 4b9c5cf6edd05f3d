#include "engine/request.h"

namespace runnel {

int64_t bytes_of(const GenerateRequest& request) {
  size_t bytes = request.prompt.size() * sizeof(int32_t);
  for (const std::vector<int32_t>& sequence : request.stop) {
    bytes += sequence.size() * sizeof(int32_t);
  }
  for (const std::string& text : request.stop_text) bytes += text.size();
  return static_cast<int64_t>(bytes);
}

}  // namespace runnel
