// The log of the server: one line for each event, as text or as JSON. There is no global logger:
// code that logs gets a reference to this.
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
  // Logs events of at least this level ("debug", "info", "warn", "error") to the process's stderr.
  EventLog(const std::string& level, bool json);
  // The same, to a stream that must outlive the log.
  EventLog(const std::string& level, bool json, std::ostream& out);

  // Whether events of level "debug" are written. For code whose fields cost time to compute.
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

// The part of a line after the time and the level.
// - As text: `ready model=mnist`. Strings with characters other than letters, digits and ._:/-+@
//   are in double quotes, and escaped as in JSON.
// - As JSON: the members of an object without its braces, `"event":"ready","model":"mnist"`.
std::string format_event(bool json, std::string_view event, std::span<const LogField> fields);

}  // namespace runnel
