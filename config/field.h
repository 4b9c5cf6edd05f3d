// The list of all settings. The parser of the config file, the flags with their help, and the table
// in docs/configuration.md are made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/server_config.h"

namespace runnel {

// kFiles: paths, separated by commas.
enum class FieldKind { kInteger, kText, kChoice, kSwitch, kFile, kFiles, kDirectory };

struct Field {
  std::string key;   // its path in the file: "limits.sessions"
  std::string flag;  // on the command line: "--sessions"
  // Names from the previous release, still accepted; empty: unchanged.
  std::string old_key, old_flag;
  FieldKind kind = FieldKind::kText;
  std::string what;                  // one line for --help and the docs
  int64_t min = 0, max = 0;          // kInteger
  std::vector<std::string> choices;  // kChoice
  bool for_gpu = false;              // the CPU backend accepts only the default
  bool may_be_empty = false;         // "" is accepted, and means that it is not set

  bool has_key(std::string_view name) const {
    return name == key || (!old_key.empty() && name == old_key);
  }
  bool is_path() const {
    return kind == FieldKind::kFile || kind == FieldKind::kFiles || kind == FieldKind::kDirectory;
  }

  // Gives the member of a config that holds the setting. Exactly one of the three is set.
  int64_t* (*integer)(ServerConfig&, size_t index) = nullptr;
  std::string* (*text)(ServerConfig&) = nullptr;
  bool* (*on)(ServerConfig&) = nullptr;
  size_t index = 0;  // of a limit
};

// Every setting but the models, in the order of the docs.
std::span<const Field> setting_fields();

// Sets a field from the argument of a flag. INVALID_ARGUMENT names the flag, what was expected and
// what was found.
Status set_from_flag(const Field& field, std::string_view word, ServerConfig& config);

// Sets a field from a value of the file. The message of INVALID_ARGUMENT does not have the key's
// path: "is 0; it must be ...".
Status set_integer(const Field& field, int64_t value, ServerConfig& config);
Status set_text(const Field& field, const std::string& value, ServerConfig& config);

// The value of a field in `config`, written as in a config file.
std::string value_text(const Field& field, const ServerConfig& config);

// The keys of the fields whose values in `a` and `b` differ.
std::vector<std::string> changed_fields(const ServerConfig& a, const ServerConfig& b);

// The values that a field accepts: "1 to 4096", "auto, cpu or cuda", "true or false".
std::string range_text(const Field& field);

// The default value of a field, for people: "none" if it is empty.
std::string default_text(const Field& field);

// The row of docs/configuration.md that documents the field.
std::string table_row(const Field& field);

}  // namespace runnel
