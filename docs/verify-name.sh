#!/bin/sh
# Verifies name records with OpenSSL 3 and POSIX tools, without ron. docs/names.md describes the bytes.
#
#   ron name get NAME --json | sh verify-name.sh          (or the JSON of GET /names/NAME)
#   ron name history NAME --json | sh verify-name.sh
#
# Prints one line for each record. Exit code 0: all signatures are valid; 1: one is not; 2: all are valid, and two of them
# contradict each other: the key has signed two records with one seq, so the name is forked.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "$@" >"$work/json"

members() { grep -o "\"$1\":\"[^\"]*\"" "$work/json" | sed 's/.*:"//; s/"$//'; }

# base64url without padding to bytes
decode() {
  text=$(printf '%s' "$1" | tr '_-' '/+')
  while [ $((${#text} % 4)) -ne 0 ]; do text="$text="; done
  printf '%s' "$text" | openssl base64 -d -A
}

# Prints "seq label" of a record in hex, which begins with a map, the key (1), the label (2), and the value (3) if any.
fields() {
  awk -v hex="$1" '
    function number(at, digits,  n, i) {
      for (i = 0; i < digits; i++) n = n * 16 + index("0123456789abcdef", substr(hex, at + i, 1)) - 1
      return n
    }
    BEGIN {
      at = 75                                   # after 01 5820 <key>, at the head of the label
      if (substr(hex, 3, 6) != "015820" || substr(hex, 73, 2) != "02") exit 1
      head = number(at, 2); at += 2
      length_bytes = head - 96
      if (head == 120) { length_bytes = number(at, 2); at += 2 }
      for (i = 0; i < length_bytes; i++) label = label sprintf("%c", number(at + 2 * i, 2))
      at += 2 * length_bytes
      if (substr(hex, at, 6) == "035820") at += 70
      if (substr(hex, at, 2) != "04") exit 1
      head = number(at + 2, 2); at += 4
      seq = head
      if (head == 24) seq = number(at, 2)
      if (head == 25) seq = number(at, 4)
      if (head == 26) seq = number(at, 8)
      if (head == 27) seq = number(at, 16)
      if (label !~ /^[a-z0-9._\/-]+$/) exit 1
      printf "%.0f %s\n", seq, label
    }'
}

members record >"$work/records"
members signature >"$work/signatures"
[ -s "$work/records" ] || { echo "no record in the input" >&2; exit 1; }

exit_code=0
: >"$work/seen"
number=0
while read -r record; do
  number=$((number + 1))
  decode "$record" >"$work/record"
  decode "$(sed -n "${number}p" "$work/signatures")" >"$work/signature"
  # The SubjectPublicKeyInfo of Ed25519 is 12 fixed bytes and the key, which is at offset 4 of the record.
  { printf '\060\052\060\005\006\003\053\145\160\003\041\000'; tail -c +5 "$work/record" | head -c 32; } >"$work/key.der"
  { printf 'ron/name/v1\n'; cat "$work/record"; } >"$work/message"
  hex=$(od -An -v -tx1 "$work/record" | tr -d ' \n')
  name=$(fields "$hex") || { echo "NOT VALID: record $number is not a name record"; exit 1; }
  key=$(printf '%s' "$hex" | cut -c 9-72)
  if openssl pkeyutl -verify -pubin -keyform DER -inkey "$work/key.der" -rawin \
    -in "$work/message" -sigfile "$work/signature" >/dev/null 2>&1; then
    echo "valid: seq $name, key $key"
    # Another record of the same key, label and seq?
    if grep -F "$key $name " "$work/seen" | grep -v -F -q "$hex"; then
      echo "FORKED: this record and one above have the same key, label and seq"
      [ "$exit_code" -eq 1 ] || exit_code=2
    fi
    echo "$key $name $hex" >>"$work/seen"
  else
    echo "NOT VALID: seq $name, key $key"
    exit_code=1
  fi
done <"$work/records"
exit "$exit_code"
