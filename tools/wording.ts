/**
 * Counts phrases that the house style bans: `npm run check` fails when one is left.
 *
 * Contract: comments of source files, and whole documents, contain none of `BANNED`. Strings of shipped code (errors, log
 * messages, help texts) and names of tests contain none either. Code in backticks is not prose and is ignored.
 *
 *     node tools/run.js tools/wording.ts packages/auth      lists what one folder has left
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** Each pattern with the advice for it. */
const BANNED: readonly (readonly [pattern: RegExp, advice: string])[] = [
  [/\b(?:some|no|every|any)body(?:'s)?\b|\bwho(?:m)?ever\b/gi, 'name the actor: the caller, the client, the worker'],
  [
    /\bwhat (?:is|was|are|were|has|have|had|it|they|he|we|you|the|a|an|this|that|these|those|one|each|does|did|do|cannot|can|could|must|may|might|would|should|will|needs?|comes?|came|goes|went|remains?|waits?|lies|lay|follows?|stands?|stood|fits|belongs|changed|counts|arrives|arrived|happened|others?|users?|clients?|callers?|ron|node|kms|passport|storage|another|any|no|not|of|an? )\b/gi,
    'replace the clause with "what" by the noun that it stands for',
  ],
  [/\bfor as long as\b/gi, 'write "while" or "until"'],
  [/\balso (?:when|if|while)\b/gi, 'write "even if" or "even while"'],
];
const SOURCE = /\.(?:ts|js)$/;
const DOCUMENT = /\.md$/;

export interface Finding {
  readonly file: string;
  readonly line: number;
  readonly phrase: string;
  readonly advice: string;
}

/** A string that is read by a person: it has a space between two words. */
const PROSE = /[A-Za-z,;:] [A-Za-z]/;
/** Comments and strings, in the order in which they occur; a regular expression literal is neither. */
const TOKENS =
  /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|(?<=[=(,:?&|!{}[;]\s*)\/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[a-z]*/g;

/** The prose of a text, with everything else blanked, so that offsets stay the same. */
export function proseOf(file: string, text: string): string {
  if (DOCUMENT.test(file)) return blankCode(text);
  let prose = '';
  let end = 0;
  for (const { 0: token, index } of text.matchAll(TOKENS)) {
    prose += blank(text.slice(end, index));
    end = index + token.length;
    const isComment = token.startsWith('//') || token.startsWith('/*');
    const isProse = isComment || (!token.startsWith('/') && PROSE.test(token));
    prose += isProse ? (isComment ? blankSpans(token) : token) : blank(token);
  }
  return prose + blank(text.slice(end));
}

const blank = (text: string): string => text.replaceAll(/[^\n]/g, ' ');
const blankSpans = (text: string): string => text.replaceAll(/`[^`\n]+`/g, blank);
const blankCode = (text: string): string => blankSpans(text.replaceAll(/^```[\s\S]*?^```/gm, blank));

export function findingsIn(file: string, text: string): Finding[] {
  const prose = proseOf(file, text).replaceAll(/\n\s*(?:\*|\/\/)?\s/g, (gap) => gap.replaceAll(/[^\n]/g, ' '));
  return BANNED.flatMap(([pattern, advice]) =>
    [...prose.matchAll(pattern)].map(({ 0: phrase, index }) => ({
      file,
      line: prose.slice(0, index).split('\n').length,
      phrase,
      advice,
    })),
  );
}

/** Findings in the tracked files below `paths`. */
export function checkWording(paths: readonly string[] = ['.']): Finding[] {
  const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...paths], {
    encoding: 'utf8',
  });
  return files
    .split('\n')
    .filter((file) => SOURCE.test(file) || DOCUMENT.test(file))
    .filter((file) => !file.startsWith('tools/wording'))
    .flatMap((file) => findingsIn(file, readFileSync(file, 'utf8')));
}

if (process.argv[1] === import.meta.filename) {
  const findings = checkWording(process.argv.slice(2).length === 0 ? undefined : process.argv.slice(2));
  for (const { file, line, phrase, advice } of findings) {
    process.stdout.write(`${file}:${line}: "${phrase.replaceAll(/\s+/g, ' ')}": ${advice}\n`);
  }
  process.stdout.write(`${findings.length} banned phrases\n`);
  process.exitCode = findings.length === 0 ? 0 : 1;
}
