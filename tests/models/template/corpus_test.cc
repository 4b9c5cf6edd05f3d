// Compares the shared templates with transformers: renderings, errors, marks and traits. Skipped if
// the templates are not next to the source tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "base/json.h"
#include "base/ordered_json.h"
#include "models/template/chat_format.h"
#include "models/template/rwkv7_g1.h"
#include "models/template/traits.h"
#include "models/text/tokenizer.h"

namespace runnel {
namespace {

const std::string kCorpus = "../shared/data/chat";

std::string text_of(const std::string& name) {
  std::ifstream in(kCorpus + "/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

OrderedJson json_of(const std::string& name) {
  const JsonLimits limits{64 << 20, 4'000'000, 64};
  return parse_ordered_json(text_of(name), name, limits).value();
}

std::string member(const OrderedJson& object, const char* name) {
  return object.contains(name) ? object[name].get<std::string>() : "";
}

// Thursday, 5 March 2026, 07:08:09.
Conversation read_conversation(const OrderedJson& from) {
  Conversation conversation;
  conversation.messages = from["messages"];
  if (from.contains("tools")) conversation.tools = from["tools"];
  conversation.now.tm_sec = 9;
  conversation.now.tm_min = 8;
  conversation.now.tm_hour = 7;
  conversation.now.tm_mday = 5;
  conversation.now.tm_mon = 2;
  conversation.now.tm_year = 126;
  conversation.now.tm_wday = 4;
  return conversation;
}

class ChatCorpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kCorpus)) GTEST_SKIP() << kCorpus << " is not there";
    models_ = json_of("models.json");
    conversations_ = json_of("conversations.json");
  }

  TemplateFiles files(const std::string& name) const {
    TemplateFiles files{.source = text_of("templates/" + name + ".jinja"), .name = name};
    for (const auto& [key, token] : models_[name]["tokens"].items()) {
      files.tokens[key] = token.get<std::string>();
    }
    return files;
  }

  TemplateSet templates(const std::string& name) const {
    return TemplateSet::parse(files(name)).value();
  }

  OrderedJson models_, conversations_;
};

TEST_F(ChatCorpus, RendersAsTransformersDoes) {
  int count = 0;
  for (const auto& [name, model] : models_.items()) {
    const TemplateSet set = templates(name);
    const OrderedJson expected = json_of("expected/" + name + ".json");
    for (const OrderedJson& one : expected["cases"]) {
      const OrderedJson& result =
          one.contains("same_as") ? expected["cases"][one["same_as"].get<size_t>()] : one;
      Conversation conversation =
          read_conversation(conversations_[one["conversation"].get<std::string>()]);
      conversation.add_generation_prompt = one["add_generation_prompt"].get<bool>();
      if (one.contains("variables")) conversation.variables = one["variables"];
      const Result<MarkedText> text = set.render(conversation);
      const std::string where = name + ", " + one["conversation"].get<std::string>();
      ++count;
      if (!result.contains("error")) {
        ASSERT_TRUE(text.ok()) << where << ": " << text.status().message();
        EXPECT_EQ(text->bytes, result["text"].get<std::string>()) << where;
        continue;
      }
      EXPECT_FALSE(text.ok()) << where;
      const OrderedJson& error = result["error"];
      if (!text.ok() && error["kind"] == "raised") {
        EXPECT_EQ(text.status().message(), member(error, "message")) << where;
      }
    }
  }
  EXPECT_GT(count, 1800);
}

// Control tokens that a user typed belong to the input, all others to the template.
TEST_F(ChatCorpus, MarksWhoWroteControlTokens) {
  const OrderedJson all = json_of("marks.json");
  for (const auto& [name, marks] : all.items()) {
    if (marks.is_null()) continue;
    Conversation conversation = read_conversation(conversations_["markup"]);
    conversation.add_generation_prompt = true;
    const Result<MarkedText> text = templates(name).render(conversation);
    ASSERT_TRUE(text.ok()) << name;
    for (const OrderedJson& control : marks["control"]) {
      size_t at = 0;  // index of the byte
      for (int64_t i = control[0].get<int64_t>(); i > 0; --i) {
        do ++at;
        while ((text->bytes[at] & 0xC0) == 0x80);
      }
      const bool is_input = least_trusted(text->runs, at, at + 1) != Writer::kTemplate;
      EXPECT_EQ(is_input, control[2] == "input") << name << " " << control;
    }
  }
}

constexpr int32_t kFirst = 1000;  // the first value of the tokens in ControlTokens

// A tokenizer that has every control token of the templates, and every added token of the golden
// tokenizers, as a special token. It must not find any of them in a client's text.
class ControlTokens : public ChatCorpus {
 protected:
  void SetUp() override {
    ChatCorpus::SetUp();
    if (IsSkipped()) return;
    marks_ = json_of("marks.json");
    std::ifstream file("tests/golden/tokenizers/whole/tokenizer.json");
    Json tree = Json::parse(file);
    for (const std::string& token : control_tokens()) {
      if (tree["model"]["vocab"].contains(token)) continue;
      const int32_t id = kFirst + static_cast<int32_t>(ids_.size());
      tree["added_tokens"].push_back({{"content", token}, {"id", id}, {"special", true}});
      ids_[token] = id;
    }
    tokenizer_ = Tokenizer::from_json(tree.dump(), "t").value();
  }

  std::set<std::string> control_tokens() const {
    std::set<std::string> tokens;
    const std::regex form(R"re(<[^\s<>'"{}()=]{1,40}>|\[/?[A-Z_]{3,}\])re");
    for (const auto& [name, model] : models_.items()) {
      const std::string source = text_of("templates/" + name + ".jinja");
      for (std::sregex_iterator it(source.begin(), source.end(), form), end; it != end; ++it) {
        tokens.insert(it->str());
      }
    }
    for (const OrderedJson& marks : marks_) {
      if (marks.is_null()) continue;
      for (const OrderedJson& control : marks["control"]) tokens.insert(control[1]);
    }
    for (const auto& folder : std::filesystem::directory_iterator("tests/golden/tokenizers")) {
      std::ifstream file(folder.path() / "tokenizer.json");
      if (!file) continue;
      const Json tree = Json::parse(file);
      for (const Json& token : tree["added_tokens"]) {
        const auto text = token["content"].get<std::string>();
        if (!text.starts_with(' ')) tokens.insert(text);  // other tokens are found in all text
      }
    }
    return tokens;
  }

  // The values of these tokens in the encoding of a text.
  std::vector<int32_t> found(const MarkedText& text) const {
    std::vector<int32_t> values = tokenizer_->encode(text).value();
    std::erase_if(values, [](int32_t value) { return value < kFirst; });
    return values;
  }

  OrderedJson marks_;
  std::map<std::string, int32_t> ids_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(ControlTokens, UsersCannotWriteControlTokens) {
  for (const auto& [name, marks] : marks_.items()) {
    if (marks.is_null()) continue;
    Conversation conversation = read_conversation(conversations_["markup"]);
    conversation.add_generation_prompt = true;
    std::vector<int32_t> expected;
    std::set<int32_t> own;  // the template may write others, too
    for (const OrderedJson& control : marks["control"]) {
      const int32_t id = ids_.at(control[1].get<std::string>());
      own.insert(id);
      if (control[2] == "template") expected.push_back(id);
    }
    std::vector<int32_t> written = found(templates(name).render(conversation).value());
    std::erase_if(written, [&](int32_t value) { return !own.contains(value); });
    EXPECT_EQ(written, expected) << name;
  }
}

// Conversations with `words` in each text of a client, except the assistant's content.
std::vector<Conversation> conversations_with(const std::string& words) {
  const OrderedJson user = {{"role", "user"}, {"content", words}, {"name", words}};
  const OrderedJson system = {{"role", "system"}, {"content", words}};
  const OrderedJson part = {{"type", "text"}, {"text", words}};
  OrderedJson parts = user;
  parts["content"] = OrderedJson::array({part, part});
  OrderedJson call = {{"id", "abcdef123"}, {"type", "function"}};
  call["function"]["name"] = words;
  call["function"]["arguments"][words] = words;
  OrderedJson asked = {{"role", "assistant"}, {"content", ""}};
  asked["tool_calls"] = OrderedJson::array({call});
  const OrderedJson result = {
      {"role", "tool"}, {"tool_call_id", "abcdef123"}, {"name", words}, {"content", words}};
  OrderedJson schema = {{"type", "object"}, {"required", OrderedJson::array({words})}};
  schema["properties"][words] = {{"type", "string"}, {"description", words}, {"default", words}};
  schema["properties"][words]["enum"] = OrderedJson::array({words});
  OrderedJson tool = {{"type", "function"}};
  tool["function"] = {{"name", words}, {"description", words}, {"parameters", schema}};
  const OrderedJson tools = OrderedJson::array({tool});
  const std::vector<std::vector<OrderedJson>> talks = {
      {user}, {system, user}, {parts}, {user, asked, result}};
  std::vector<Conversation> all;
  for (const std::vector<OrderedJson>& messages : talks) {
    OrderedJson from = {{"messages", messages}};
    if (messages.size() == 3) from["tools"] = tools;
    all.push_back(read_conversation(from));
    all.back().add_generation_prompt = true;
  }
  all.push_back(all.front());
  for (const char* const name : {"reasoning_effort", "model_identity", "date_string", "other"}) {
    all.back().variables[name] = words;
  }
  return all;
}

// A client's text that consists of all the tokens gives exactly the control tokens that the text
// "x" gives.
TEST_F(ControlTokens, TextOfAClientNeverBecomesAControlToken) {
  std::string words = "x";
  for (const auto& [token, id] : ids_) words += " " + token;
  const std::vector<Conversation> plain = conversations_with("x");
  const std::vector<Conversation> typed = conversations_with(words + " x");
  int count = 0;
  for (const auto& [name, model] : models_.items()) {
    const auto format = ChatFormat::make(files(name), tokenizer_);
    if (!format.ok()) continue;  // ProbesFindTheTraits covers it
    for (size_t i = 0; i < plain.size(); ++i) {
      const Result<MarkedText> one = (*format)->render(plain[i]);
      const Result<MarkedText> other = (*format)->render(typed[i]);
      ASSERT_EQ(one.ok(), other.ok()) << name << " " << i;
      if (!one.ok()) continue;  // the template has no tools, or no system message
      EXPECT_EQ(found(*other), found(*one)) << name << " " << i;
      ++count;
    }
  }
  EXPECT_GT(count, 160);
}

// The server keeps a state after the values that a turn shares with the beginning of the next turn.
TEST_F(ControlTokens, TheNextTurnBeginsWithTheSharedValues) {
  int count = 0;
  for (const auto& [name, model] : models_.items()) {
    const auto format = ChatFormat::make(files(name), tokenizer_);
    if (!format.ok() || !(*format)->traits().history_begins_next) continue;
    for (const bool thinks : {false, true}) {
      Conversation next = read_conversation(conversations_["turns"]);
      next.add_generation_prompt = true;
      if (!(*format)->traits().system) next.messages.erase(0);
      for (OrderedJson& message : next.messages) {
        if (thinks && message["role"] == "assistant") message["reasoning_content"] = "Hm.";
      }
      Conversation now = next;
      now.messages.erase(now.messages.size() - 1);
      now.messages.erase(now.messages.size() - 1);
      const auto values = (*format)->encode((*format)->render(now).value()).value();
      const int64_t shared = (*format)->shared_with_next(now, values);
      EXPECT_GT(shared, 0) << name;
      const auto later = (*format)->encode((*format)->render(next).value()).value();
      ASSERT_LT(shared, std::ssize(later)) << name;
      EXPECT_TRUE(std::equal(values.begin(), values.begin() + shared, later.begin())) << name;
      ++count;
    }
  }
  EXPECT_GT(count, 70);
}

TEST_F(ChatCorpus, ProbesFindTheTraits) {
  const OrderedJson all = json_of("traits.json");
  for (const auto& [name, expected] : all.items()) {
    const Result<ChatTraits> traits = probe(templates(name));
    if (expected.contains("skipped")) {
      EXPECT_FALSE(traits.ok()) << name;
      continue;
    }
    ASSERT_TRUE(traits.ok()) << name << ": " << traits.status().message();
    const auto text = [](const std::optional<std::string>& value) {
      return value ? OrderedJson(*value) : OrderedJson(nullptr);
    };
    EXPECT_EQ(traits->system, expected["system"]) << name;
    EXPECT_EQ(text(traits->generation_prompt), expected["generation_prompt"]) << name;
    EXPECT_EQ(traits->thinking_open, expected["thinking_open"]) << name;
    EXPECT_EQ(OrderedJson(traits->after_answer.bytes), expected["after_answer"]) << name;
    EXPECT_EQ(traits->history_begins_next, expected["history_begins_next"]) << name;
    EXPECT_EQ(traits->prompt_and_answer_begin_next, expected["prompt_and_answer_begin_next"])
        << name;
    EXPECT_EQ(traits->takes_parts, expected["takes_parts"]) << name;
    EXPECT_EQ(traits->tools_change_prompt, expected["tools_change_prompt"]) << name;
    EXPECT_EQ(traits->thinking_switch, expected["thinking_switch"]) << name;
    // The expected text has 60 characters before the call, ours at most 60 bytes.
    const auto expect_call = [&](const std::optional<std::string>& found, const char* key) {
      const OrderedJson& call = expected[key];
      ASSERT_EQ(found.has_value(), !call.is_null()) << name;
      if (found) {
        EXPECT_EQ(found->empty(), call == "") << name;
        EXPECT_TRUE(call.get<std::string>().ends_with(*found)) << name << *found;
      }
    };
    expect_call(traits->call_without_content, "tool_call_content_absent");
    expect_call(traits->call_with_empty_content, "tool_call_content_empty");
  }
}

OrderedJson message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

// A session reads only the new messages. They are the end of the whole conversation, after the end
// of the answer, unless the template makes them depend on earlier messages.
TEST_F(ChatCorpus, NewMessagesRenderAsTheEndOfTheWholeConversation) {
  const OrderedJson once = {message("user", "Hello?"), message("assistant", "Yes.")};
  const OrderedJson twice = {message("user", "Hello?"), message("assistant", "Yes."),
                             message("user", "So?"), message("assistant", "Hm.")};
  const OrderedJson ruled = {message("system", "Be kind."), message("user", "Hello?"),
                             message("assistant", "Yes.")};
  std::set<std::string> dependent;
  int count = 0;
  for (const auto& [name, model] : models_.items()) {
    const auto format = ChatFormat::make(files(name), Tokenizer::of_bytes());
    if (!format.ok()) continue;  // ProbesFindTheTraits covers it
    const ChatTraits& traits = (*format)->traits();
    Conversation news;
    news.messages = OrderedJson::array({message("user", "Who?")});
    news.add_generation_prompt = true;
    const Result<MarkedText> next = (*format)->render_next(news);
    EXPECT_EQ(next.ok(), traits.follows_any_answer) << name;
    if (!traits.follows_any_answer) dependent.insert(name);
    if (!next.ok()) continue;
    for (const OrderedJson& history : {once, twice, ruled}) {
      Conversation whole = news;
      whole.messages = history;
      whole.messages.push_back(news.messages[0]);
      const Result<MarkedText> text = (*format)->render(whole);
      if (!text.ok() && !traits.system) continue;
      ASSERT_TRUE(text.ok()) << name << ": " << text.status().message();
      EXPECT_TRUE(text->bytes.ends_with(next->bytes)) << name << "\n" << text->bytes;
      ++count;
    }
  }
  EXPECT_EQ(dependent, (std::set<std::string>{"mistral-nemo"})) << "it moves the system message";
  EXPECT_GT(count, 110);
}

TEST_F(ChatCorpus, TheBuiltInTemplateRendersLikeTheOneOfItsAuthor) {
  const TemplateSet set = TemplateSet::parse({.source = kRwkv7G1Template, .name = "g"}).value();
  const OrderedJson file = json_of("rwkv7-g1.json");
  for (const OrderedJson& one : file.is_array() ? file : file["cases"]) {
    Conversation conversation = read_conversation(one);
    conversation.add_generation_prompt = one["add_generation_prompt"].get<bool>();
    if (one.contains("enable_thinking") && !one["enable_thinking"].is_null()) {
      conversation.variables["enable_thinking"] = one["enable_thinking"];
    }
    const Result<MarkedText> text = set.render(conversation);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(text->bytes, one["text"].get<std::string>());
  }
}

}  // namespace
}  // namespace runnel
