#include "server/host/event_log.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>

#include "base/json.h"

namespace runnel {
namespace {

bool is_plain(std::string_view text) {
  constexpr std::string_view kOthers = "._:/-+@";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           kOthers.find(c) != std::string_view::npos;
  });
}

struct ToText {
  bool json;
  std::string operator()(const std::string& text) const {
    return !json && is_plain(text) ? text : json_string(text);
  }
  std::string operator()(int64_t number) const { return std::to_string(number); }
  std::string operator()(double number) const { return Json(number).dump(); }
  std::string operator()(bool on) const { return on ? "true" : "false"; }
};

std::shared_ptr<spdlog::logger> make_logger(const std::string& level, bool json,
                                            spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("runnel", std::move(sink));
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::trace);
  logger->set_pattern(json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%v})"
                           : "%Y-%m-%dT%H:%M:%S.%e%z %v");
  return logger;
}

// In the words of --log-level; spdlog says "warning".
std::string level_name(spdlog::level::level_enum level) {
  if (level == spdlog::level::warn) return "warn";
  const auto name = spdlog::level::to_string_view(level);
  return {name.data(), name.size()};
}

}  // namespace

std::string format_event(bool json, std::string_view event, std::span<const LogField> fields) {
  std::string line;
  line += json ? "\"event\":" : "";
  line += json ? json_string(event) : std::string(event);
  for (const LogField& field : fields) {
    line += json ? "," : " ";
    line += json ? json_string(field.name) : std::string(field.name);
    line += json ? ":" : "=";
    line += std::visit(ToText{json}, field.value);
  }
  return line;
}

EventLog::EventLog(const std::string& level, bool json)
    : logger_(make_logger(level, json, std::make_shared<spdlog::sinks::stderr_sink_mt>())),
      json_(json) {}

EventLog::EventLog(const std::string& level, bool json, std::ostream& out)
    : logger_(make_logger(level, json, std::make_shared<spdlog::sinks::ostream_sink_mt>(out))),
      json_(json) {}

void EventLog::write(spdlog::level::level_enum level, std::string_view event,
                     std::span<const LogField> fields) const {
  if (!logger_->should_log(level)) return;
  const std::string line =
      level_name(level) + (json_ ? "\"," : " ") + format_event(json_, event, fields);
  logger_->log(level, spdlog::string_view_t(line.data(), line.size()));
}

void EventLog::debug(std::string_view event, std::initializer_list<LogField> fields) const {
  write(spdlog::level::debug, event, {fields.begin(), fields.size()});
}
void EventLog::info(std::string_view event, std::initializer_list<LogField> fields) const {
  write(spdlog::level::info, event, {fields.begin(), fields.size()});
}
void EventLog::info(std::string_view event, std::span<const LogField> fields) const {
  write(spdlog::level::info, event, fields);
}
void EventLog::warn(std::string_view event, std::initializer_list<LogField> fields) const {
  write(spdlog::level::warn, event, {fields.begin(), fields.size()});
}
void EventLog::error(std::string_view event, std::initializer_list<LogField> fields) const {
  write(spdlog::level::err, event, {fields.begin(), fields.size()});
}

}  // namespace runnel
