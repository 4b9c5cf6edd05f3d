#include "server/host/call_metrics.h"

#include <algorithm>

namespace runnel {
namespace {

template <typename Names>
size_t index_in(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end() - 1, name) - names.begin();
}

}  // namespace

void CallMetrics::count(std::string_view method, const Status& status) {
  ended[index_in(kMethods, method)][static_cast<size_t>(status.code())].add();
  if (!status.reason().empty()) refused[index_in(kReasons, status.reason())].add();
}

void CallMetrics::add(const CallMetrics& other) {
  for (size_t method = 0; method < ended.size(); ++method) {
    for (size_t code = 0; code < kCodes; ++code) {
      ended[method][code].add(other.ended[method][code].value());
    }
  }
  for (size_t reason = 0; reason < refused.size(); ++reason) {
    refused[reason].add(other.refused[reason].value());
  }
  first_value.add(other.first_value);
}

}  // namespace runnel
