#include "storage/known_records.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace runnel {
namespace {

Record record_at(int64_t position) {
  Record record;
  record.position = position;
  return record;
}

std::optional<int64_t> position_of(KnownRecords& records, const std::string& key) {
  const auto found = records.find(key);
  return found ? std::optional(found->record.position) : std::nullopt;
}

TEST(KnownRecords, ReturnsWhatWasPutLast) {
  KnownRecords records;
  EXPECT_EQ(position_of(records, "a"), std::nullopt);
  records.put("a", "one", record_at(1), 10);
  records.put("b", "two", record_at(2), 10);
  records.put("a", "three", record_at(3), 10);
  EXPECT_EQ(position_of(records, "a"), 3);
  EXPECT_EQ(records.find("a")->version, "three");
  EXPECT_EQ(position_of(records, "b"), 2);
  records.forget("a");
  records.forget("c");
  EXPECT_EQ(position_of(records, "a"), std::nullopt);
  EXPECT_EQ(position_of(records, "b"), 2);
}

TEST(KnownRecords, ALargeRecordIsForgotten) {
  KnownRecords records;
  records.put("a", "one", record_at(1), 10);
  records.put("b", "one", record_at(2), 10);
  records.put("a", "two", record_at(3), kKnownRecordBytes);
  EXPECT_EQ(position_of(records, "a"), std::nullopt) << "the old record is not returned, either";
  EXPECT_EQ(position_of(records, "b"), 2);
}

TEST(KnownRecords, AllAreForgottenWhenThereAreTooMany) {
  KnownRecords records;
  const size_t bytes = kKnownRecordBytes / 2;
  const size_t most = kKnownRecordsBytes / kKnownRecordBytes;  // that certainly fit
  for (size_t i = 0; i < most; ++i) records.put(std::to_string(i), "one", record_at(1), bytes);
  EXPECT_EQ(position_of(records, "0"), 1);
  for (size_t i = 0; i < most; ++i) {
    records.put("0", "again", record_at(2), bytes);
    records.put("0", "again", record_at(3), 1);
  }
  EXPECT_EQ(position_of(records, "1"), 1) << "a record that is replaced counts once";
  for (size_t i = 0; i < 2 * most; ++i) records.put("x" + std::to_string(i), "", {}, bytes);
  EXPECT_EQ(position_of(records, "1"), std::nullopt);
}

}  // namespace
}  // namespace runnel
