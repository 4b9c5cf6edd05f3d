#include "config/server_config.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/list_text.h"
#include "base/store_url.h"
#include "base/text.h"
#include "config/edit_distance.h"
#include "config/field.h"

namespace runnel {
namespace {

constexpr JsonLimits kJsonLimits{kMaxConfigFileBytes, kMaxConfigFileBytes, 8};
constexpr int64_t kMaxStreamValues = 1 << 24;
constexpr int64_t kMostRewound = 1 << 20;
constexpr int64_t kMostBetweenSnapshots = 4096;

Status wrong_type(const std::string& where, const char* expected, const Json& found) {
  return invalid_argument(where + " is " + describe(found) + "; expected " + expected);
}

Status unknown_key(const std::string& where, const std::string& key,
                   std::span<const std::string> known) {
  std::string message = where + " has an unknown key " + quote(key);
  const std::string meant = nearest(key, known);
  if (!meant.empty()) return invalid_argument(message + "; did you mean '" + meant + "'?");
  message += "; known are ";
  for (size_t i = 0; i < known.size(); ++i) message += (i == 0 ? "" : ", ") + known[i];
  return invalid_argument(std::move(message));
}

class FileReader {
 public:
  FileReader(std::string file, ServerConfig& config) : file_(std::move(file)), config_(config) {}

  Status read(const Json& root) {
    if (!root.is_object()) return wrong_type(file_ + ": the file", "an object", root);
    for (const auto& [key, value] : root.items()) {
      Status status;
      if (key == "models") {
        status = read_models(value);
      } else if (const std::string group = key + "."; is_group(group)) {
        status = read_group(group, value);
      } else {
        status = read_field(file_, "", key, value);
      }
      if (!status.ok()) return status;
    }
    return {};
  }

 private:
  static bool is_group(const std::string& group) {
    return std::ranges::any_of(setting_fields(),
                               [&](const Field& f) { return f.key.starts_with(group); });
  }

  // The keys of a group ("limits."), or of the outermost object ("").
  static std::vector<std::string> known_keys(const std::string& group) {
    std::vector<std::string> known;
    if (group.empty()) known.emplace_back("models");
    for (const Field& field : setting_fields()) {
      if (!field.key.starts_with(group)) continue;
      const std::string rest = field.key.substr(group.size());
      const std::string key = rest.substr(0, rest.find('.'));
      if (std::ranges::find(known, key) == known.end()) known.push_back(key);
    }
    return known;
  }

  Status read_group(const std::string& group, const Json& value) {
    const std::string name = group.substr(0, group.size() - 1);
    if (!value.is_object()) return wrong_type(file_ + ": " + name, "an object", value);
    for (const auto& [key, member] : value.items()) {
      Status status = read_field(file_ + ": " + name, group, key, member);
      if (!status.ok()) return status;
    }
    return {};
  }

  Status read_field(const std::string& owner, const std::string& group, const std::string& key,
                    const Json& value) {
    const auto all = setting_fields();
    const auto field =
        std::ranges::find_if(all, [&](const Field& f) { return f.has_key(group + key); });
    // {"log.level": "debug"} must not be accepted in place of {"log": {"level": "debug"}}.
    if (field == all.end() || key.find('.') != std::string::npos) {
      return unknown_key(owner, key, known_keys(group));
    }
    const std::string where = file_ + ": " + group + key;
    if (group + key != field->key) {
      config_.old_names.push_back(where + " is called " + field->key + " now");
    }
    Status status;
    if (field->kind == FieldKind::kSwitch) {
      if (!value.is_boolean()) return wrong_type(where, "true or false", value);
      *field->on(config_) = value.get<bool>();
    } else if (field->kind == FieldKind::kInteger) {
      const bool fits = value.is_number_integer() &&
                        !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
      const std::string expected = "a whole number between " + std::to_string(field->min) +
                                   " and " + std::to_string(field->max);
      if (!fits) return wrong_type(where, expected.c_str(), value);
      status = set_integer(*field, value.get<int64_t>(), config_);
    } else {
      if (!value.is_string()) return wrong_type(where, "a string", value);
      status = set_text(*field, value.get<std::string>(), config_);
      if (field->kind == FieldKind::kFiles) {
        all_from_here(*field->text(config_));
      } else if (field->is_path()) {
        from_here(*field->text(config_));
      } else if (field->text(config_) == &config_.storage_url) {
        store_from_here(config_.storage_url);
      }
    }
    return status.ok() ? status : invalid_argument(where + " " + status.message());
  }

  Status read_models(const Json& value) {
    if (!value.is_array()) return wrong_type(file_ + ": models", "an array of objects", value);
    config_.models.clear();
    for (const Json& entry : value) {
      const std::string where = file_ + ": models[" + std::to_string(config_.models.size()) + "]";
      ModelConfig model;
      if (Status s = read_model(where, entry, model); !s.ok()) return s;
      config_.models.push_back(std::move(model));
    }
    return {};
  }

  Status read_model(const std::string& where, const Json& entry, ModelConfig& model) const {
    static const std::vector<std::string> kKnown = {"name", "path", "aliases", "chat_template"};
    if (!entry.is_object()) return wrong_type(where, "an object with path and name", entry);
    for (const auto& [key, member] : entry.items()) {
      if (std::ranges::find(kKnown, key) == kKnown.end()) return unknown_key(where, key, kKnown);
      if (key == "aliases") {
        if (Status s = read_aliases(where + ".aliases", member, model); !s.ok()) return s;
        continue;
      }
      if (!member.is_string()) return wrong_type(where + "." + key, "a string", member);
      if (key == "chat_template") {
        model.chat_template = member.get<std::string>();
      } else {
        (key == "name" ? model.name : model.path) = member.get<std::string>();
      }
    }
    if (model.path.empty()) {
      return invalid_argument(where + ".path is missing; expected the directory of a bundle");
    }
    from_here(model.path);
    from_here(model.chat_template);
    return {};
  }

  static Status read_aliases(const std::string& where, const Json& value, ModelConfig& model) {
    if (!value.is_array()) return wrong_type(where, "an array of names", value);
    for (const Json& alias : value) {
      if (!alias.is_string()) return wrong_type(where, "an array of names", value);
      model.aliases.push_back(alias.get<std::string>());
    }
    return {};
  }

  // Makes a path of the file relative to the file's own directory.
  void from_here(std::string& path) const {
    if (path.empty() || std::filesystem::path(path).is_absolute()) return;
    path = (std::filesystem::path(file_).parent_path() / path).lexically_normal().string();
  }

  // Does the same with the directory in "dir:PATH".
  void store_from_here(std::string& url) const {
    constexpr std::string_view kDirectory = "dir:";
    if (!url.starts_with(kDirectory)) return;
    std::string path = url.substr(kDirectory.size());
    from_here(path);
    url = std::string(kDirectory) + path;
  }

  // Does the same with each path in a list with commas.
  void all_from_here(std::string& paths) const {
    std::string all;
    for (std::string& path : split_list(paths)) {
      from_here(path);
      all += (all.empty() ? "" : ",") + path;
    }
    paths = std::move(all);
  }

  const std::string file_;
  ServerConfig& config_;
};

// Records the name or an alias of a model.
Status take_name(const std::string& name, std::set<std::string>& names) {
  if (!is_plain_name(name)) {
    return invalid_argument("a model's name must be " + plain_name_text() + "; found " +
                            quote(name));
  }
  if (names.insert(name).second) return {};
  return invalid_argument("two models are named '" + name + "'; give each a name of its own");
}

Status check_names(const std::vector<ModelConfig>& models) {
  std::set<std::string> names;
  for (const ModelConfig& model : models) {
    if (!model.name.empty()) {  // empty: the bundle's own
      if (Status s = take_name(model.name, names); !s.ok()) return s;
    }
    if (std::ssize(model.aliases) > kMaxAliases) {
      return invalid_argument("a model has " + std::to_string(model.aliases.size()) +
                              " aliases; at most " + std::to_string(kMaxAliases) + " are allowed");
    }
    for (const std::string& alias : model.aliases) {
      if (Status s = take_name(alias, names); !s.ok()) return s;
    }
  }
  return {};
}

// "host:port", "[::1]:port" or "unix:PATH".
Status check_address(const std::string& key, const std::string& address) {
  if (address.starts_with("unix:") && address.size() > 5) return {};
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
  if (colon != std::string::npos && colon > 0 && digits && std::stoi(port) <= 65535) return {};
  return invalid_argument(key + " is " + quote(address) +
                          "; expected host:port with a port of 0 to 65535, as 127.0.0.1:50051, "
                          "[::]:50051 or unix:PATH");
}

constexpr std::string_view kNotInHosts = "/?#@* ";

// Browsers send the origin of a page without a path, so any other form would match none.
Status check_origins(const std::string& origins) {
  for (const std::string& origin : split_list(origins)) {
    const size_t scheme = origin.find("://");
    const bool has_host = scheme != std::string::npos && scheme > 0 && scheme + 3 < origin.size();
    const bool is_alone =
        has_host && origin.find_first_of(kNotInHosts, scheme + 3) == std::string::npos;
    const bool has_default_port = (origin.starts_with("https://") && origin.ends_with(":443")) ||
                                  (origin.starts_with("http://") && origin.ends_with(":80"));
    if (is_alone && has_default_port) {
      return invalid_argument("http_origins has " + quote(origin) +
                              "; leave out the port, because browsers do not send the default one");
    }
    if (is_alone || origin == "null") continue;
    return invalid_argument("http_origins has " + quote(origin) +
                            "; expected scheme://host or scheme://host:port without a path, as in "
                            "https://app.example.org");
  }
  return {};
}

// The names are compared with the Host of a request, without its port.
Status check_hosts(const std::string& hosts) {
  for (const std::string& host : split_list(hosts)) {
    const bool has_port =
        host.starts_with('[') ? !host.ends_with(']') : host.find(':') != std::string::npos;
    const bool is_alone = host.find_first_of(kNotInHosts) == std::string::npos;
    if (is_alone && !has_port && !host.ends_with('.')) continue;
    return invalid_argument("http_hosts has " + quote(host) +
                            "; expected the name of a host alone, as in models.example.org");
  }
  return {};
}

// A certificate and its key are two settings of a section, and both must be set or neither.
Status check_pair(const std::string& section, const std::string& cert, const std::string& key) {
  if (cert.empty() == key.empty()) return {};
  const auto [set, missing] = key.empty() ? std::pair(".cert", ".key") : std::pair(".key", ".cert");
  return invalid_argument(section + set + " is set and " + section + missing +
                          " is not: a certificate and its key go together");
}

Status check_tls(const ServerConfig& config) {
  if (Status s = check_pair("tls", config.tls_cert, config.tls_key); !s.ok()) return s;
  if (!config.tls_client_ca.empty() && config.tls_cert.empty()) {
    return invalid_argument(
        "tls.client_ca is set and tls.cert is not: certificates of clients need TLS; set tls.cert "
        "and tls.key");
  }
  return {};
}

// A setting that only a GPU supports is refused on the CPU, not ignored.
Status check_for_cpu(const ServerConfig& config) {
  static const ServerConfig kDefaults;
  for (const Field& field : setting_fields()) {
    if (!field.for_gpu || value_text(field, config) == value_text(field, kDefaults)) continue;
    return invalid_argument(field.flag + " is '" + value_text(field, config) +
                            "', which backend cpu does not have; use --backend cuda, or " +
                            field.flag + " " + value_text(field, kDefaults));
  }
  return {};
}

// call_bytes must have room to parse and answer the largest message.
Status check_call_bytes(const ServerConfig& config) {
  constexpr int64_t kPerByte = 17;  // 16, and some reserve
  const int64_t needed = kPerByte * config.limit(limits::kMessageBytes);
  const int64_t there = config.limit(limits::kCallBytes);
  if (needed <= there) return {};
  return invalid_argument("limits.call_bytes is " + std::to_string(there) +
                          "; it must be at least " + std::to_string(needed) +
                          ", 17 times limits.message_bytes, or the largest message cannot be read");
}

// All samples of a call share one stream, whose memory is allocated when the call begins.
Status check_stream_room(const ServerConfig& config) {
  const int64_t room = config.limit(limits::kStreamRoom);
  const int64_t samples = config.limit(limits::kSamples);
  if (room * samples <= kMaxStreamValues) return {};
  return invalid_argument(
      "limits.stream_room is " + std::to_string(room) + " and limits.samples is " +
      std::to_string(samples) + ": one stream would hold " + std::to_string(room * samples) +
      " values, and may hold " + std::to_string(kMaxStreamValues) + "; lower one of them");
}

// The server must not end an idle session before the call that has changed it is saved, or the wait
// for the store has been given up.
Status check_storage_times(const ServerConfig& config) {
  constexpr int64_t kSlack = 2000;  // each of the times is checked about once a second
  const int64_t idle = config.limit(limits::kIdleTimeoutMs);
  const int64_t least = config.storage_timeout_ms + kSlack;
  if (config.storage_url.empty() || idle >= least) return {};
  return invalid_argument("limits.idle_timeout_ms is " + std::to_string(idle) +
                          " and storage.timeout_ms is " +
                          std::to_string(config.storage_timeout_ms) +
                          ": a session could end before the store has it; set "
                          "limits.idle_timeout_ms to at least " +
                          std::to_string(least) + ", or lower storage.timeout_ms");
}

Status check_storage(const ServerConfig& config) {
  StoreUrl url;
  if (!config.storage_url.empty()) {
    auto parsed = parse_store_url(config.storage_url);
    if (!parsed.ok()) return parsed.status();
    url = std::move(*parsed);
  }
  const bool is_redis = url.kind == StoreKind::kRedis;
  if (!config.storage_password_file.empty() && !is_redis) {
    return invalid_argument(
        "storage.password_file is set, and storage.url is not of Redis: only Redis has a password");
  }
  for (const auto& [name, file] :
       {std::pair("ca", &config.storage_ca), std::pair("cert", &config.storage_cert),
        std::pair("key", &config.storage_key)}) {
    if (file->empty() || url.tls) continue;
    return invalid_argument("storage." + std::string(name) +
                            " is set, and storage.url does not begin with rediss://: only TLS has "
                            "certificates");
  }
  if (Status s = check_pair("storage", config.storage_cert, config.storage_key); !s.ok()) return s;
  if (!url.user.empty() && config.storage_password_file.empty()) {
    return invalid_argument("storage.url names the user " + quote(url.user) +
                            "; set storage.password_file, the file of this user's password");
  }
  if (!is_redis || !config.seal_keys.empty()) return {};
  return invalid_argument(
      "storage.url is of Redis, where others may write, and seal_keys is not set: states must be "
      "sealed there. Make a key with '(umask 077 && head -c 32 /dev/urandom > FILE)' and name it "
      "in seal_keys");
}

}  // namespace

ServerConfig::ServerConfig()
    : address("127.0.0.1:50051"),
      storage_sync("each"),
      backend("auto"),
      isa("auto"),
      precision("auto"),
      cache("auto"),
      kernels("own"),
      gpu_state("plain"),
      prompts("steps"),
      network("whole"),
      log_level("info") {
  for (const Limit* limit : all_limits()) limits.push_back(limit->default_value);
}

int64_t ServerConfig::limit(const Limit& limit) const {
  const auto all = all_limits();
  const auto at = std::ranges::find(all, &limit);
  check(at != all.end(), "the limit is one of all_limits()");
  return limits[at - all.begin()];
}

bool is_plain_name(std::string_view name) {
  const bool plain = std::ranges::all_of(name, [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
  });
  return plain && !name.empty() && std::ssize(name) <= kMaxNameLength;
}

std::string plain_name_text() {
  return "1 to " + std::to_string(kMaxNameLength) + " characters of A-Z a-z 0-9 . _ : -";
}

Status parse_config(std::string_view text, const std::string& file, ServerConfig& config) {
  const Result<Json> json = parse_json(text, file, kJsonLimits);
  if (!json.ok()) return json.status();
  return FileReader(file, config).read(*json);
}

Status read_config_file(const std::string& path, ServerConfig& config) {
  const Result<std::string> text = read_file(path, kMaxConfigFileBytes);
  if (text.status().code() == Code::kNotFound) {
    return not_found(text.status().message() + "; expected a config file (--config)");
  }
  if (!text.ok()) return text.status();
  return parse_config(*text, path, config);
}

Result<ModelConfig> parse_model(std::string_view text) {
  ModelConfig model;
  const size_t equals = text.find('=');
  // A directory may have "=" in its name; a model may not have "/".
  if (equals != std::string_view::npos && text.substr(0, equals).find('/') == std::string::npos) {
    model.name = text.substr(0, equals);
    text.remove_prefix(equals + 1);
    if (model.name.empty()) {
      return invalid_argument(
          "a bundle is given as '=DIRECTORY'; expected DIRECTORY or "
          "NAME=DIRECTORY");
    }
  }
  model.path = text;
  if (model.path.empty()) {
    return invalid_argument(
        "a bundle is given without a directory; expected DIRECTORY or "
        "NAME=DIRECTORY");
  }
  return model;
}

Status set_chat_template(std::string_view text, std::vector<ModelConfig>& models) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  if (equals == std::string_view::npos || name.empty() || equals + 1 == text.size()) {
    return invalid_argument("--chat-template is " + quote(text) + "; expected NAME=FILE");
  }
  std::string known;
  for (ModelConfig& model : models) {
    const std::filesystem::path path = std::filesystem::path(model.path + "/").parent_path();
    const std::string called = model.name.empty() ? path.filename().string() : model.name;
    if (called == name) {
      model.chat_template = text.substr(equals + 1);
      return {};
    }
    known += (known.empty() ? "" : ", ") + quote(called);
  }
  return invalid_argument("--chat-template names the model " + quote(name) + "; expected one of: " +
                          known + " (NAME=DIRECTORY gives a model another name)");
}

Result<RewindConfig> parse_rewind(std::string_view text) {
  if (text.empty()) return RewindConfig();
  RewindConfig rewind;
  const char* const end = text.data() + text.size();
  const auto values = std::from_chars(text.data(), end, rewind.values);
  const bool comma = values.ec == std::errc() && values.ptr != end && *values.ptr == ',';
  const auto every = std::from_chars(comma ? values.ptr + 1 : end, end, rewind.every);
  const auto fits = [](int64_t number, int64_t most) { return number >= 1 && number <= most; };
  if (comma && every.ec == std::errc() && every.ptr == end && fits(rewind.values, kMostRewound) &&
      fits(rewind.every, kMostBetweenSnapshots)) {
    return rewind;
  }
  return invalid_argument(
      "rewind is " + quote(text) +
      "; it must be two numbers with a comma between, as in 256,64: the positions "
      "that sessions can go back, 1 to " +
      std::to_string(kMostRewound) + ", and the values from one snapshot to the next, 1 to " +
      std::to_string(kMostBetweenSnapshots));
}

Status check_config(const ServerConfig& config) {
  if (config.models.empty()) {
    return invalid_argument(
        "there is nothing to serve: name the directory of a bundle, as in 'runnel serve "
        "zoo/mnist-small', or set models in the config file");
  }
  if (static_cast<int64_t>(config.models.size()) > kMaxModels) {
    return invalid_argument("models has " + std::to_string(config.models.size()) +
                            " entries; at most " + std::to_string(kMaxModels) + " are allowed");
  }
  if (Status s = check_names(config.models); !s.ok()) return s;
  if (config.backend == "cpu") {
    if (Status s = check_for_cpu(config); !s.ok()) return s;
  }
  if (const auto rewind = parse_rewind(config.rewind); !rewind.ok()) return rewind.status();
  if (Status s = check_stream_room(config); !s.ok()) return s;
  if (Status s = check_call_bytes(config); !s.ok()) return s;
  if (Status s = check_tls(config); !s.ok()) return s;
  if (Status s = check_storage(config); !s.ok()) return s;
  if (Status s = check_storage_times(config); !s.ok()) return s;
  if (Status s = check_hosts(config.http_hosts); !s.ok()) return s;
  if (Status s = check_origins(config.http_origins); !s.ok()) return s;
  if (Status s = check_address("address", config.address); !s.ok()) return s;
  for (const auto& [key, address] : {std::pair("metrics_address", &config.metrics_address),
                                     std::pair("http_address", &config.http_address)}) {
    if (address->empty()) continue;
    if (Status s = check_address(key, *address); !s.ok()) return s;
  }
  return {};
}

}  // namespace runnel
