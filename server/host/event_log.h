// The log of the server: one line an event, as text or as JSON. No global logger: whoever logs is
// given this.
#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/status.h"

namespace runnel {

// One detail of an event.
struct LogField {
  std::string_view name;
  std::variant<std::string, int64_t, double, bool> value;
};

class EventLog {
 public:
  // Logs to the process's stderr what is at least as grave as `level` ("debug", "info", "warn",
  // "error").
  EventLog(const std::string& level, bool json);
  // The same, to a stream that outlives it.
  EventLog(const std::string& level, bool json, std::ostream& out);

  // True when an event of this level would be written: asked where its fields cost something.
  bool wants_debug() const { return logger_->should_log(spdlog::level::debug); }

  void debug(std::string_view event, std::initializer_list<LogField> fields) const;
  void info(std::string_view event, std::initializer_list<LogField> fields) const;
  void info(std::string_view event, std::span<const LogField> fields) const;
  void warn(std::string_view event, std::initializer_list<LogField> fields) const;
  void error(std::string_view event, std::initializer_list<LogField> fields) const;

 private:
  void write(spdlog::level::level_enum level, std::string_view event,
             std::span<const LogField> fields) const;

  std::shared_ptr<spdlog::logger> logger_;
  bool json_;
};

// What follows the time and the level of a line. Text: `ready model=mnist`, strings with other
// characters than letters, digits and ._:/-+@ in double quotes, escaped as in JSON. JSON: the
// members of an object without its braces, `"event":"ready","model":"mnist"`.
std::string format_event(bool json, std::string_view event, std::span<const LogField> fields);

}  // namespace runnel
