#include "server/http/answer_head.h"

#include <array>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/write.hpp>
#include <ctime>
#include <sstream>

namespace runnel {

namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

std::string http_date(std::time_t now) {
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

}  // namespace

std::string answer_head(const AnswerForm& form, int status, std::string_view content_type,
                        std::optional<size_t> length, const HttpHeaders& headers) {
  http::response<http::empty_body> head(static_cast<http::status>(status), form.version);
  head.set(http::field::date, http_date(form.clock->unix_time()));
  for (const auto& [name, value] : form.headers) head.set(name, value);
  for (const auto& [name, value] : headers) head.set(name, value);
  if (status != 204) {
    head.set(http::field::content_type, {content_type.data(), content_type.size()});
    if (length) {
      head.content_length(*length);
    } else {
      head.chunked(form.version == 11);
    }
  }
  head.keep_alive(form.keep_alive);
  std::ostringstream text;
  text << head.base();
  return text.str();
}

}  // namespace runnel
