// How calls ended, by method, code and reason. Any thread may count and read.
#pragma once

#include <array>
#include <string_view>

#include "base/metrics.h"
#include "base/status.h"

namespace runnel {

// The methods and reasons (Status::reason()) that are counted separately. The last of each list is
// for all others, so that clients cannot make new labels.
inline constexpr std::array<std::string_view, 26> kMethods = {"Generate",
                                                              "Score",
                                                              "CreateSession",
                                                              "GetSession",
                                                              "ListSessions",
                                                              "DeleteSession",
                                                              "ForkSession",
                                                              "RewindSession",
                                                              "ExportSession",
                                                              "ImportSession",
                                                              "ListStates",
                                                              "ListModels",
                                                              "GetModel",
                                                              "GetStatus",
                                                              "Reload",
                                                              "openai.models",
                                                              "openai.completions",
                                                              "openai.images",
                                                              "openai.chat",
                                                              "openai.responses",
                                                              "openai.tokenize",
                                                              "openai.detokenize",
                                                              "openai.openapi",
                                                              "http.options",
                                                              "http.refused",
                                                              "other"};
inline constexpr std::array<std::string_view, 15> kReasons = {
    "mailbox",     "queue",          "sessions",     "sessions_per_caller",
    "quota_calls", "quota_sessions", "quota_values", "call_bytes",
    "memory",      "loading",        "draining",     "device",
    "key",         "storage",        "other"};
inline constexpr size_t kCodes = 17;  // of Code

struct CallMetrics {
  std::array<std::array<Counter, kCodes>, kMethods.size()> ended;
  std::array<Counter, kReasons.size()> refused;
  Histogram first_value{kTimeBuckets};  // of a generation: from the call's arrival

  // Counts a call of `method` that ended with `status`.
  void count(std::string_view method, const Status& status);
  // Adds the counts of `other`.
  void add(const CallMetrics& other);
};

}  // namespace runnel
