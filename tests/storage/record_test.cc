#include "storage/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "storage/record_key.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

const std::string kRecordKey = record_key("model", "ada", "a");

Record some_record() {
  return {.epoch = 7,
          .owner = "server/model \"x\"",
          .until = 99,
          .begun = "abc",
          .seed = -5,
          .last = "id:abc",
          .answer = {.has_ended = false, .text = "{\"y\":2}"},
          .position = 12,
          .state = 6,
          .tail = std::string(64, '0'),
          .state_at = 9,
          .log = {"{\"x\":1}", ""},
          .saved = 6,
          .used = 50,
          .list = record_list("model", "ada"),
          .id = "a"};
}

TEST(RecordKey, DistinctPartsGiveDistinctKeys) {
  EXPECT_TRUE(is_record_key(kRecordKey));
  EXPECT_NE(record_key("model", "ada", "b"), kRecordKey);
  EXPECT_NE(record_key("model", "adaa", ""), kRecordKey);
  EXPECT_NE(record_key("modelada", "", "a"), kRecordKey);
  EXPECT_FALSE(is_record_key(kRecordKey + "0"));
  EXPECT_FALSE(is_record_key("../" + kRecordKey.substr(3)));
}

TEST(Record, ReadsBackTheSame) {
  const auto read = parse_record(record_text(some_record(), kRecordKey), kRecordKey);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, some_record());
}

TEST(Record, RecordsOfReleasesWithoutAnswersAreRead) {
  Record record = some_record();
  record.answer = {};
  const std::string text = record_text(record, kRecordKey);
  EXPECT_EQ(text.find("answer"), text.npos);
  EXPECT_EQ(text.find("stopped"), text.npos);
  EXPECT_EQ(parse_record(text, kRecordKey)->answer, SavedAnswer()) << "the call counts as ended";
}

TEST(Record, RecordsOfReleasesWithoutListsAreRead) {
  Record record = some_record();
  record.list = record.id = "";
  const std::string text = record_text(record, kRecordKey);
  EXPECT_EQ(text.find("\"list\""), text.npos);
  EXPECT_EQ(*parse_record(text, kRecordKey), record);
}

TEST(RecordList, BelongsToOneOwnerAndOneModel) {
  const std::string list = record_list("model", "ada");
  EXPECT_TRUE(is_record_list(list));
  EXPECT_NE(record_list("model", "bob"), list);
  EXPECT_NE(record_list("modelada", ""), list);
  EXPECT_FALSE(is_record_list(list + "0"));
  for (const char* const id : {"a", "A-z_0.9:", "..", "a.json"})
    EXPECT_TRUE(is_listed_id(id)) << id;
  for (const char* const id : {"", "a b", "a/b", "a~b", "a\nb", "\xc3\xa4"}) {
    EXPECT_FALSE(is_listed_id(id)) << id;
  }
  EXPECT_TRUE(is_listed_id(std::string(128, 'a')));
  EXPECT_FALSE(is_listed_id(std::string(129, 'a')));
}

TEST(Record, RecordsOfVersion1AreRead) {
  std::string text = record_text(some_record(), kRecordKey);
  text.resize(text.find(",\"answer\""));
  text.replace(text.find("\"version\":2"), 11, "\"version\":1");
  text += R"(,"answer":"{\"y\":2}","list":")" + record_list("model", "ada") +
          R"(","id":"a","log":["{\"x\":1}",""]})" + "\n";
  const auto read = parse_record(text, kRecordKey);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, some_record());
}

TEST(Record, TruncatedRecordsAreRefused) {
  const std::string whole = record_text(some_record(), kRecordKey);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(parse_record(whole.substr(0, size), kRecordKey).status().code(), Code::kDataLoss)
        << size;
  }
}

TEST(Record, TextsOfAnotherLengthAreRefused) {
  const std::string whole = record_text(some_record(), kRecordKey);
  EXPECT_EQ(parse_record(whole + "x", kRecordKey).status().code(), Code::kDataLoss);
  EXPECT_EQ(parse_record(whole + "\n", kRecordKey).status().code(), Code::kDataLoss);
  std::string torn = whole;  // as a file system may leave it
  torn[whole.find("{\"x\":1}")] = '\0';
  EXPECT_EQ(parse_record(torn, kRecordKey).status().code(), Code::kDataLoss);
}

TEST(Record, TextsMayHaveAnyBytesButNul) {
  Record record = some_record();
  record.answer.text = "\n\"\\\xff\n";
  record.log = {"\n", "{}\n{}", "\x01"};
  EXPECT_EQ(*parse_record(record_text(record, kRecordKey), kRecordKey), record);
}

TEST(Record, RecordsOfAnotherSessionAreRefused) {
  const std::string other = record_text(some_record(), record_key("model", "bob", "a"));
  const Status status = parse_record(other, kRecordKey).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("of another session"));
}

TEST(Record, InvalidFieldsAreRefused) {
  const auto with = [](const std::string& found, const std::string& wrong) {
    std::string text = record_text(some_record(), kRecordKey);
    const size_t at = text.find(found);
    EXPECT_NE(at, text.npos) << found;
    return parse_record(text.replace(at, found.size(), wrong), kRecordKey).status();
  };
  EXPECT_TRUE(with("\"used\":50", "\"used\":51").ok());
  for (const auto& [found, wrong] : {std::pair("\"version\":2", "\"version\":3"),
                                     std::pair("\"epoch\":7", "\"epoch\":0"),
                                     std::pair("\"epoch\":7", "\"epoch\":1e300"),
                                     std::pair("\"epoch\":7", "\"epoch\":9223372036854775807"),
                                     std::pair("\"epoch\":7", "\"epoch\":\"7\""),
                                     std::pair("\"position\":12", "\"position\":-1"),
                                     std::pair("\"state\":6", "\"state\":8"),
                                     std::pair("\"until\":99", "\"until\":-1"),
                                     std::pair("\"begun\":\"abc\"", "\"begun\":3"),
                                     std::pair("\"begun\":\"abc\"", "\"other\":\"abc\""),
                                     std::pair("\"tail\":\"00", "\"tail\":\"0g"),
                                     std::pair("\"state_at\":9", "\"state_at\":13"),
                                     std::pair("\"state_at\":9", "\"state_at\":-1"),
                                     std::pair("\"saved\":6", "\"saved\":8"),
                                     std::pair("\"saved\":6", "\"saved\":0"),
                                     std::pair("[7,0]", "[7,0]]"),
                                     std::pair("[7,0]", "[7,1]"),
                                     std::pair("[7,0]", "[7,-1]"),
                                     std::pair("[7,0]", "[7]"),
                                     std::pair("[7,0]", "[6,0]"),
                                     std::pair("[7,0]", "[7,18446744073709551615]"),
                                     std::pair("[7,0]", "[7,0.0]"),
                                     std::pair("[7,0]", "[7,[]]"),
                                     std::pair("[7,0]", "7"),
                                     std::pair("\"tail\":\"00", "\"tail\":\"0000"),
                                     std::pair("\"stopped\":true", "\"stopped\":1"),
                                     std::pair("\"list\":\"", "\"list\":\"0"),
                                     std::pair("\"list\":\"", "\"list\":\"\",\"x\":\""),
                                     std::pair("\"id\":\"a\"", "\"id\":\"\""),
                                     std::pair("\"id\":\"a\"", "\"id\":\"/\""),
                                     std::pair("\"id\":\"a\",", ""),
                                     std::pair("\"answer\":7", "\"answer\":6"),
                                     std::pair("\"answer\":7", "\"answer\":7,\"x\":7"),
                                     std::pair("\"last\":\"id:abc\"", "\"last\":\"\"")}) {
    EXPECT_EQ(with(found, wrong).code(), Code::kDataLoss) << wrong;
  }
  EXPECT_EQ(with("abc", std::string(600, 'a')).code(), Code::kDataLoss);
  EXPECT_EQ(with("abc", std::string(100000, 'a')).code(), Code::kDataLoss);
  EXPECT_EQ(with("abc", std::string("a\0b", 3)).code(), Code::kDataLoss);
}

TEST(Record, ALogBeyondItsBoundsIsRefused) {
  const auto with = [](size_t entries, int64_t bytes) {
    Record record = some_record();
    record.log.assign(entries, std::string(static_cast<size_t>(bytes), '"'));
    return parse_record(record_text(record, kRecordKey), kRecordKey).status().code();
  };
  EXPECT_EQ(with(kMostLogEntries, 1), Code::kOk);
  EXPECT_EQ(with(kMostLogEntries + 1, 1), Code::kDataLoss);
  EXPECT_EQ(with(2, kMostLogBytes / 2), Code::kOk) << "also where each byte takes two";
  EXPECT_EQ(with(2, kMostLogBytes / 2 + 1), Code::kDataLoss);
  Record record = some_record();
  record.log.clear();
  EXPECT_EQ(parse_record(record_text(record, kRecordKey), kRecordKey).status().code(),
            Code::kDataLoss);
}

TEST(Record, AnAnswerBeyondItsBoundIsRefused) {
  for (const int64_t more : {0, 1}) {
    Record record = some_record();
    record.answer.text.assign(static_cast<size_t>(kMostAnswerBytes + more), '"');
    const auto read = parse_record(record_text(record, kRecordKey), kRecordKey);
    EXPECT_EQ(read.status().code(), more == 0 ? Code::kOk : Code::kDataLoss);
  }
}

TEST(Record, TheLargestRecordIsRead) {
  Record record = some_record();
  record.answer.text.assign(static_cast<size_t>(kMostAnswerBytes), '"');
  record.log.assign(kMostLogEntries, std::string(kMostLogBytes / kMostLogEntries, '"'));
  const std::string text = record_text(record, kRecordKey);
  EXPECT_LE(std::ssize(text), kMostRecordBytes);
  EXPECT_TRUE(parse_record(text, kRecordKey).ok());
}

TEST(Record, ARecreatedSessionHasNewEpochs) {
  Record first = new_record({"one/m"}, 1000);
  const Begun begun = begin_record(first, {.owner = "one/m", .request = "a"}, 1000, 10, false);
  ASSERT_EQ(begun.outcome, FenceOutcome::kOk);
  Record second = new_record({"one/m"}, 1005);
  EXPECT_FALSE(end_record(second, {"one/m", begun.epoch}, 1006, true));
}

TEST(Record, AnAttemptAfterACrashKeepsTheSeedUnlessItsCallerGivesOne) {
  Record record = new_record({"one/m"}, 1000);
  const Claim claim = {.owner = "one/m", .request = "id:a", .seed = 3};
  ASSERT_EQ(begin_record(record, claim, 1000, 10, false).seed, 3);
  Claim again = {.owner = "two/m", .request = "id:a", .seed = 4};
  Record copy = record;
  EXPECT_EQ(begin_record(copy, again, 2000, 10, false).seed, 3);
  again.is_seed_given = true;
  EXPECT_EQ(begin_record(record, again, 2000, 10, false).seed, 4);
}

}  // namespace
}  // namespace runnel
