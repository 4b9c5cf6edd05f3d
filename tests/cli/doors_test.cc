// Every refusal of the server at every door: its message uses only the words of that door.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "cli/field_flags.h"
#include "server/openai/words.h"
#include "server/rest/words.h"
#include "tests/cli/every_refusal.h"

namespace runnel {
namespace {

using ::testing::IsSupersetOf;

std::string_view canonical(std::string_view field) { return field; }

struct Door {
  const char* name;
  std::string_view (*word_of)(std::string_view field);
  std::set<Asked> asked;  // what its requests can ask for
};

std::vector<Door> doors() {
  using enum Asked;
  return {
      {"gRPC",
       canonical,
       {kGenerate, kScore, kCreate, kSessions, kSave, kLoad, kToken, kText, kModel, kChat, kWire}},
      {"/v1/completions", completion_word, {kGenerate, kToken, kText, kModel}},
      {"/v1/chat/completions", chat_word, {kGenerate, kModel, kChat}},
      {"/v1/responses", response_word, {kGenerate, kModel}},
      {"/v1/images/generations", image_word, {kGenerate, kModel}},
      {"runnel's own paths", rest_word, {kCreate, kSessions, kSave, kLoad, kText, kModel}},
      {"runnel generate", generate_flag, {kGenerate, kCreate, kText, kModel}},
      {"runnel chat", chat_flag, {kGenerate, kCreate, kSessions, kModel, kChat}},
      {"runnel draw", draw_flag, {kGenerate, kModel}},
      {"runnel score", score_flag, {kScore, kText, kModel}},
      {"runnel session", session_flag, {kSessions, kSave, kModel}},
      {"runnel session load", session_load_flag, {kCreate, kLoad, kModel}}};
}

std::set<std::string> words_of(const Door& door) {
  std::set<std::string> words;
  for (const std::string_view field : fields::kAll) words.emplace(door.word_of(field));
  return words;
}

// Whether a word can only be the name of a field. "count", for example, is also an English word.
bool is_plainly_a_name(const std::string& word) {
  if (word == "n" || word == "samples") return true;
  return word.find_first_of("._-") != word.npos && word.find(' ') == word.npos;
}

// Words that only other doors use.
std::set<std::string> foreign_words(const Door& door) {
  const std::set<std::string> own = words_of(door);
  std::set<std::string> foreign;
  for (const Door& other : doors()) {
    for (const std::string& word : words_of(other)) {
      if (is_plainly_a_name(word) && !own.contains(word)) foreign.insert(word);
    }
  }
  return foreign;
}

bool is_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
}

// Whether `text` has `word` as a whole: "max_values" is not a whole word in "delivery.max_values".
bool has_word(const std::string& text, const std::string& word) {
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !(is_of_word(text[at - 1]) || text[at - 1] == '.');
    if (begins && (end == text.size() || !is_of_word(text[end]))) return true;
  }
  return false;
}

// A refusal that names a field occurs only at doors that have this field.
bool may_come(const Refusal& refusal, const Door& door) {
  const std::string_view field = refusal.status.field();
  return door.asked.contains(refusal.asked) && (field.empty() || !door.word_of(field).empty());
}

TEST(Doors, NoMessageNamesAFieldOfAnotherDoor) {
  const std::vector<Refusal> refusals = every_refusal();
  for (const Door& door : doors()) {
    const std::set<std::string> foreign = foreign_words(door);
    EXPECT_GT(foreign.size(), 20U) << door.name;
    int come = 0;
    for (const Refusal& refusal : refusals) {
      if (!may_come(refusal, door)) continue;
      ++come;
      const std::string message = refusal.status.message(door.word_of);
      EXPECT_EQ(message.find_first_of("\x1e\x1f"), message.npos) << door.name << ": " << message;
      for (const std::string& word : foreign) {
        EXPECT_FALSE(has_word(message, word)) << word << " at " << door.name << ": " << message;
      }
    }
    EXPECT_GE(come, 5) << door.name;
  }
}

// The fields that `message` refers to with a place mark.
std::set<std::string> places_in(const std::string& message) {
  std::set<std::string> places;
  for (size_t at = message.find('\x1f'); at != message.npos; at = message.find('\x1f', at + 1)) {
    const size_t end = message.find('\x1f', at + 1);
    if (end == message.npos) break;
    places.insert(message.substr(at + 1, end - at - 1));
    at = end;
  }
  return places;
}

TEST(Doors, EveryFieldIsInARefusal) {
  std::set<std::string> found;
  for (const Refusal& refusal : every_refusal()) {
    found.merge(places_in(refusal.status.raw_message()));
    found.emplace(refusal.status.field());
  }
  EXPECT_THAT(found, IsSupersetOf(std::set<std::string>(fields::kAll.begin(), fields::kAll.end())));
}

TEST(Doors, TheSearchForFieldNamesFindsOnlyWholeWords) {
  EXPECT_TRUE(has_word("max_values is 0", "max_values"));
  EXPECT_TRUE(has_word("set --count", "--count"));
  EXPECT_TRUE(has_word("n is 0", "n"));
  EXPECT_FALSE(has_word("delivery.max_values is 0", "max_values"));
  EXPECT_FALSE(has_word("start it with --sessions 3", "--session"));
  EXPECT_FALSE(has_word("no session", "n"));
}

}  // namespace
}  // namespace runnel
