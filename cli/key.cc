#include "cli/key.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "cli/common_flags.h"
#include "config/server_config.h"

namespace runnel {
namespace {

int failed(Console& console, const Status& status) {
  return fail(console, kExitUsage, status.message());
}

// Copies the settings that a new entry lacks from the last entry of the same name.
void take_over(const std::vector<KeyEntry>& entries, KeyEntry& entry) {
  const auto last = std::find_if(entries.rbegin(), entries.rend(),
                                 [&](const KeyEntry& other) { return other.name == entry.name; });
  if (last == entries.rend()) return;
  if (!entry.calls) entry.calls = last->calls;
  if (!entry.sessions) entry.sessions = last->sessions;
  if (!entry.values_per_second) entry.values_per_second = last->values_per_second;
  if (!entry.models) entry.models = last->models;
  entry.admin = entry.admin || last->admin;
}

Status remove_keys(const std::string& name, bool old, std::vector<KeyEntry>& entries) {
  const auto is_of = [&](const KeyEntry& entry) { return entry.name == name; };
  const auto count = std::ranges::count_if(entries, is_of);
  if (count == 0) return not_found("there is no key of " + quote(name));
  auto left = old ? count - 1 : count;
  std::erase_if(entries, [&](const KeyEntry& entry) { return is_of(entry) && left-- > 0; });
  return {};
}

// Removes a new key that could not be printed, so that nobody has it. Returns the exit code.
int forget_unseen(const KeyOptions& options, const KeyEntry& unseen, Console& console) {
  const Status status = change_key_file(options.file, false, [&](std::vector<KeyEntry>& entries) {
    std::erase_if(entries,
                  [&](const KeyEntry& entry) { return is_same(entry.digest, unseen.digest); });
    return Status();
  });
  if (!status.ok()) return failed(console, status);
  return fail(console, kExitFailed,
              "the key could not be written to standard output, and is removed again");
}

std::string quotas_text(const KeyEntry& entry) {
  std::string text;
  const auto add = [&](const std::string& word) { text += (text.empty() ? "" : ", ") + word; };
  if (entry.calls) add("calls " + with_commas(*entry.calls));
  if (entry.sessions) add("sessions " + with_commas(*entry.sessions));
  if (entry.values_per_second) add("values per second " + with_commas(*entry.values_per_second));
  if (entry.models) {
    std::string names;
    for (const std::string& name : *entry.models) names += " " + name;
    add(names.empty() ? "no model" : "models" + names);
  }
  if (entry.admin) add("admin");
  return text.empty() ? "no quotas" : text;
}

OrderedJson entry_json(const KeyEntry& entry) {
  OrderedJson json = {{"name", entry.name}, {"id", key_id(entry)}};
  if (entry.calls) json["calls"] = *entry.calls;
  if (entry.sessions) json["sessions"] = *entry.sessions;
  if (entry.values_per_second) json["values_per_second"] = *entry.values_per_second;
  if (entry.models) json["models"] = *entry.models;
  json["admin"] = entry.admin;
  return json;
}

std::string check_caller_name(const std::string& name) {
  return is_plain_name(name) ? "" : "a name is " + plain_name_text() + ", not " + quote(name, 40);
}

void add_quota(const Command& command, const char* flag, std::optional<int64_t>& quota,
               const char* what) {
  command.flag(flag, quota, what).between(int64_t{1}, kMaxQuota);
}

using Run = int (*)(const KeyOptions&, Console&);

Command add_command(const Command& key, const char* name, const char* what,
                    const std::shared_ptr<KeyOptions>& options, Run run) {
  const Command command = key.command(name, what);
  command.flag("--file", options->file, "The file of keys").shows_default();
  command.runs([options, run](Console& console) { return run(*options, console); });
  return command;
}

}  // namespace

int run_key_new(const KeyOptions& options, Console& console) {
  const std::string key = new_key();
  KeyEntry entry = options.entry;
  entry.digest = digest_of_key(key);
  if (!options.models.empty()) {
    entry.models = std::set(options.models.begin(), options.models.end());
  }
  const Status status = change_key_file(options.file, true, [&](std::vector<KeyEntry>& entries) {
    if (std::ssize(entries) >= kMaxKeys) {
      return invalid_argument(quote(options.file, 400) + " has " + std::to_string(kMaxKeys) +
                              " keys, and may have no more: remove some");
    }
    take_over(entries, entry);
    entries.push_back(entry);
    return Status();
  });
  if (!status.ok()) return failed(console, status);
  console.err << "A key of " << entry.name << " is in " << tame(options.file) << ", as a hash ("
              << quotas_text(entry) << "). This is the key; it is not shown again:\n";
  console.out << key << std::endl;
  if (console.out) return kExitOk;
  return forget_unseen(options, entry, console);
}

int run_key_list(const KeyOptions& options, Console& console) {
  const Result<std::vector<KeyEntry>> entries = read_key_file(options.file);
  if (!entries.ok()) return failed(console, entries.status());
  if (options.json) {
    OrderedJson keys = OrderedJson::array();
    for (const KeyEntry& entry : *entries) keys.push_back(entry_json(entry));
    console.out << json_text({{"keys", keys}}) << '\n';
    return kExitOk;
  }
  size_t width = 0;
  for (const KeyEntry& entry : *entries) width = std::max(width, entry.name.size());
  for (const KeyEntry& entry : *entries) {
    console.out << entry.name << std::string(width + 2 - entry.name.size(), ' ') << key_id(entry)
                << "  " << quotas_text(entry) << '\n';
  }
  if (entries->empty()) console.out << "no keys\n";
  return kExitOk;
}

int run_key_remove(const KeyOptions& options, Console& console) {
  const Status status = change_key_file(options.file, false, [&](std::vector<KeyEntry>& entries) {
    for (const std::string& name : options.names) {
      if (Status s = remove_keys(name, options.old, entries); !s.ok()) return s;
    }
    return Status();
  });
  return status.ok() ? kExitOk : failed(console, status);
}

void add_key(const Command& root) {
  const Command key = root.command("key", "The keys that a server asks callers for");
  key.needs_command();
  const auto made = std::make_shared<KeyOptions>();
  const Command add =
      add_command(key, "new", "Make a key, print it once, and keep its hash", made, run_key_new);
  add.flag("name", made->entry.name, "Name of the key's holder, who owns the sessions made with it")
      .required()
      .check(check_caller_name);
  add_quota(add, "--calls", made->entry.calls, "Most streams at the same time");
  add_quota(add, "--sessions", made->entry.sessions,
            "Most states at the same time, over all models");
  add_quota(add, "--values-per-second", made->entry.values_per_second,
            "Most values a second, given and sampled");
  add.flag("--models", made->models, "The models that the key may use (default: all)")
      .separated_by_commas()
      .check(check_caller_name);
  add.flag("--admin", made->entry.admin, "The key may reload the server's models");

  const auto listed = std::make_shared<KeyOptions>();
  add_json(add_command(key, "list", "List the names, ids and quotas of keys", listed, run_key_list),
           listed->json);

  const auto removed = std::make_shared<KeyOptions>();
  const Command remove = add_command(key, "remove", "Remove keys, and end the calls made with them",
                                     removed, run_key_remove);
  remove.flag("name", removed->names, "Names whose keys to remove").required();
  remove.flag("--old", removed->old, "Keep the newest key of each name");
}

}  // namespace runnel
