// The command key: the file of keys that `runnel serve --keys` reads.
#pragma once

#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/flags.h"
#include "config/key_file.h"

namespace runnel {

struct KeyOptions {
  std::string file = "keys.jsonl";
  KeyEntry entry;                   // new: its name, quotas and rights
  std::vector<std::string> models;  // new: the models that the key may use; none: every model
  std::vector<std::string> names;   // remove
  bool old = false;                 // remove: keep only the newest key of each name
  bool json = false;                // list
};

// Each function runs one command and returns its exit code (console.h).

// Makes a key, adds its hash to the file, and prints the key. It is never shown again. If the name
// already has a key, the new key takes over the quotas and rights that the options do not set.
int run_key_new(const KeyOptions& options, Console& console);
int run_key_list(const KeyOptions& options, Console& console);
int run_key_remove(const KeyOptions& options, Console& console);

// Adds the command to the program.
void add_key(const Command& root);

}  // namespace runnel
