// The records of sessions as a store has written them last, so that the next change of a session
// need not read its record again. If there are too many, all are forgotten. Any thread may call any
// function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "storage/record.h"

namespace runnel {

// The maximum memory of all records, and of one. A larger record is not kept.
inline constexpr size_t kKnownRecordsBytes = size_t{8} << 20;
inline constexpr size_t kKnownRecordBytes = size_t{128} << 10;

struct KnownRecord {
  std::string version;  // the first line of the record's text
  Record record;
};

class KnownRecords {
 public:
  // The record of a session; none: it is not known.
  std::optional<KnownRecord> find(const std::string& key);
  // Keeps a record whose text has `bytes`. Without memory for it, forgets it.
  void put(const std::string& key, std::string_view version, const Record& record, size_t bytes);
  void forget(const std::string& key);

 private:
  struct Entry {
    KnownRecord known;
    size_t bytes = 0;  // estimated
  };

  void erase(const std::string& key);

  std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by key
  size_t bytes_ = 0;                      // of all entries
};

}  // namespace runnel
