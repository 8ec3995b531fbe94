/**
 * Lists phrases that the house style bans.
 *
 * Contract: comments, strings that contain prose (errors, log messages, help texts, test names) and documents contain none of
 * `BANNED`. Code in backticks, fenced blocks, regular expressions and identifiers are not prose. A phrase is found even if
 * it is broken over two lines.
 *
 *     node tools/run.js tools/wording.ts packages/auth      lists the findings in one folder
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';

/** Each pattern with the advice for it. A space in a pattern matches any white space. */
const BANNED: readonly (readonly [pattern: RegExp, advice: string])[] = [
  [
    /\b(?:some|no|every|any)body\b|\b(?:some|every|any)one\b(?! of)|\bno one\b|\bwho(?:m)?ever\b/i,
    'name the actor: the caller, the client, the worker',
  ],
  [
    /\bwhat(?:ever)? (?!to\b|for\b|if\b|about\b|kind\b|else\b)[a-z]+/i,
    'replace the clause with "what" by the noun that it stands for',
  ],
  [/\bfor as long as\b/i, 'write "while" or "until"'],
  [/\balso (?:when|if|while)\b/i, 'write "even if" or "even while"'],
  [
    /(?<!\bthere )\bis no (?!longer\b|more\b|less\b|worse\b|better\b|different\b|such\b)[a-z]+/i,
    'write "is not a", "is not valid", or name the problem',
  ],
  [/\bgood no more\b|\bno more good\b/i, 'write "is no longer valid", "expired" or "revoked"'],
  [/\b(?:hears?|heard)\b/i, 'write "receives", "polls" or "is notified"'],
  [
    /\b(?:told|tells?) of\b|\b(?:is|are|was|were|be|been) told\b/i,
    'write "is notified", "is reported" or "is called for"',
  ],
  [/\b(?:all|those|the one) who\b/i, 'name the actor: the callers, the clients that'],
  [/\bcannot be asked\b/i, 'name the failure: "does not answer", "refuses"'],
  [/\bone argument too many\b/i, 'write "unexpected argument"'],
  [/\bset down\b|\bwritten down\b/i, 'write "persisted", "stored" or "recorded"'],
  [/\bmend(?:s|ed|ing)?\b/i, 'write "repair" or "correct"'],
  [/\bfor ever\b/i, 'write "indefinitely" or "forever"'],
];
const SOURCE = /\.(?:ts|js)$/;
const DOCUMENT = /\.md$/;
/** Replaces code, so that offsets stay the same and no phrase spans it. */
const FILLER = '\u25A1';

export interface Finding {
  readonly file: string;
  readonly line: number;
  readonly phrase: string;
  readonly advice: string;
}

/** A string that a person reads has a space between two words. */
const PROSE = /[A-Za-z,;:] [A-Za-z]/;
/** Comments, strings and regular expression literals, in the order in which they occur. */
const TOKENS =
  /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|(?<=[=(,:?&|!{}[;]\s*)\/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[a-z]*/g;

/** The prose of a text. All other characters are fillers, so that offsets stay the same. */
export function proseOf(file: string, text: string): string {
  if (DOCUMENT.test(file)) return blankSpans(text.replaceAll(/^ *```[\s\S]*?^ *```/gm, blank));
  let prose = '';
  let end = 0;
  for (const { 0: token, index } of text.matchAll(TOKENS)) {
    prose += blank(text.slice(end, index)) + tokenProse(token);
    end = index + token.length;
  }
  return prose + blank(text.slice(end));
}

function tokenProse(token: string): string {
  // The asterisks and slashes at the start of a comment line are white space.
  if (token.startsWith('//')) return blankSpans(`  ${token.slice(2)}`);
  if (token.startsWith('/*'))
    return blankSpans(token.replaceAll(/^\s*\/\*+|^\s*\*(?!\/)/gm, (mark) => mark.replaceAll(/[/*]/g, ' ')));
  if (token.startsWith('/') || !PROSE.test(token)) return blank(token);
  if (token.startsWith('`'))
    return token.replaceAll(/\\`(?:[^`\\]|\\(?!`))*\\`/g, blank).replaceAll(/\$\{[^{}]*\}/g, blank);
  return blankSpans(token);
}

const blank = (text: string): string => text.replaceAll(/[^\n]/g, FILLER);
const blankSpans = (text: string): string => text.replaceAll(/`[^`\n]+`/g, blank);

export function findingsIn(file: string, text: string): Finding[] {
  // Consecutive line comments are one text: the end of a line and the indentation of the next are white space.
  const prose = proseOf(file, text).replaceAll(/\n\u25A1*(?= {2})/g, (gap) => gap.replaceAll(FILLER, ' '));
  return BANNED.flatMap(([{ source, flags }, advice]) =>
    [...prose.matchAll(new RegExp(source.replaceAll(' ', String.raw`\s+`), `${flags}g`))].map(
      ({ 0: phrase, index }) => ({
        file,
        line: prose.slice(0, index).split('\n').length,
        phrase: phrase.replaceAll(/\s+/g, ' '),
        advice,
      }),
    ),
  );
}

/** Findings in the tracked and new files below `paths`. */
export function checkWording(paths: readonly string[] = ['.']): Finding[] {
  const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...paths], {
    encoding: 'utf8',
  });
  return files
    .split('\n')
    .filter((file) => SOURCE.test(file) || DOCUMENT.test(file))
    .filter((file) => !file.startsWith('tools/wording') && existsSync(file))
    .flatMap((file) => findingsIn(file, readFileSync(file, 'utf8')));
}

if (process.argv[1] === import.meta.filename) {
  const paths = process.argv.slice(2);
  const findings = checkWording(paths.length === 0 ? undefined : paths);
  for (const { file, line, phrase, advice } of findings) {
    process.stdout.write(`${file}:${line}: "${phrase}": ${advice}\n`);
  }
  process.stdout.write(`${findings.length} banned phrases\n`);
  process.exitCode = findings.length === 0 ? 0 : 1;
}
