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
  std::vector<std::string> models;  // new: those of the entry; none: every model
  std::vector<std::string> names;   // remove
  bool old = false;                 // remove: all keys of each name but the newest
  bool json = false;                // list
};

// Each runs one command to its end and gives the exit code (console.h).

// Makes a key, adds its hash to the file, and prints the key: the only time that it is seen.
// Another key of a name takes over the quotas and rights that are not given.
int run_key_new(const KeyOptions& options, Console& console);
int run_key_list(const KeyOptions& options, Console& console);
int run_key_remove(const KeyOptions& options, Console& console);

// Adds the command to the program.
void add_key(const Command& root);

}  // namespace runnel
