import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { findingsIn } from './wording.ts';

/** A sentence for each banned phrase. */
const BANNED = [
  'Told to somebody else',
  'Nobody listens there',
  'Everybody can read it',
  'Anybody may call this',
  'An address that anyone can verify',
  'No one waits for it',
  'Wakes whoever waits',
  'Returns what was written',
  'Renders what volumes hold',
  'Ends whatever it started',
  'Kept for as long as it runs',
  'Resolves also when the work fails',
  'Works also if the disk is full',
  'This is no address',
  'Then the token is good no more',
  'It hears from passport',
  'Passport was not heard of',
  'Told of each removed object',
  'The subscriber is told at once',
  'One run for all who ask',
  'The witness cannot be asked',
  'That is one argument too many',
  'The version was not set down',
  'A damaged record is mended',
  'It is kept for ever',
];

/** Sentences that are close to a banned phrase and allowed. */
const ALLOWED = [
  'There is no volume in this directory',
  'The key is no longer valid',
  'The message states what to do',
  'One of the volumes is read, and another one is written',
  'Also, the signal aborts it',
  'The client waits as long as the server does',
];

const BACKSLASH = '\\';
const PLACES: Readonly<Record<string, (sentence: string) => [file: string, text: string]>> = {
  'a line comment': (sentence) => ['a.ts', `f(1); // ${sentence}.\n`],
  'a comment above code': (sentence) => ['a.ts', `/** ${sentence}. */\nexport const a = 1;\n`],
  'a block comment': (sentence) => ['a.js', `/*\n * Contract: x.\n * ${sentence}, if so.\n */\n`],
  'a comment that breaks at each word': (sentence) => ['a.ts', `/**\n * ${sentence.replaceAll(' ', '\n * ')}.\n */\n`],
  'line comments that break at each word': (sentence) => ['a.ts', `  // ${sentence.replaceAll(' ', '\n  // ')}.\n`],
  'an error message': (sentence) => ['a.ts', `throw new Error('${sentence}');\n`],
  'a string in double quotes': (sentence) => ['a.ts', `log.warn("it's: ${sentence}");\n`],
  'a template': (sentence) => ['a.ts', `const a = \`${BACKSLASH}\`x${BACKSLASH}\` of \${b}: ${sentence}\`;\n`],
  'a test name': (sentence) => ['a.test.ts', `test('${sentence.toLowerCase()}', () => {});\n`],
  'a string after a regular expression': (sentence) => ['a.ts', `split(/['"\`]/g, '${sentence}');\n`],
  'a paragraph': (sentence) => ['docs/a.md', `# Title\n\nText. ${sentence}.\n`],
  'a table cell': (sentence) => ['docs/a.md', `| a | b |\n| --- | --- |\n| \`a\` | ${sentence} |\n`],
  'a paragraph that breaks at each word': (sentence) => ['docs/a.md', `${sentence.replaceAll(' ', '\n')}.\n`],
};

const NOT_PROSE: Readonly<Record<string, (sentence: string) => [file: string, text: string]>> = {
  'backticks in a comment': (sentence) => ['a.ts', `// Matches \`${sentence}\` only.\n`],
  'backticks in a string': (sentence) => ['a.ts', `f('run \`${sentence}\` now');\n`],
  'escaped backticks in a template': (sentence) => [
    'a.ts',
    `f(\`run ${BACKSLASH}\`${sentence}${BACKSLASH}\` now\`);\n`,
  ],
  'backticks in a document': (sentence) => ['docs/a.md', `The log says \`${sentence}\`.\n`],
  'a fenced block': (sentence) => ['docs/a.md', `Text.\n\n\`\`\`console\n$ echo ${sentence}\n\`\`\`\n`],
  'a fenced block in a list': (sentence) => ['docs/a.md', `- Text:\n\n  \`\`\`sh\n  echo ${sentence}\n  \`\`\`\n`],
  'a regular expression': (sentence) => ['a.ts', `assert.match(text, /${sentence}/);\n`],
  identifiers: (sentence) => ['a.ts', `const ${sentence.replaceAll(' ', '_')} = ${sentence.replaceAll(' ', '.')};\n`],
  'an expression in a template': (sentence) => ['a.ts', `f(\`a text \${${sentence.replaceAll(' ', ' + ')}}\`);\n`],
  'a word of two comments with code between': (sentence) => [
    'a.ts',
    sentence
      .split(' ')
      .map((word) => `f(); // ${word}`)
      .join('\ng(1);\n'),
  ],
};

for (const [place, inPlace] of Object.entries(PLACES)) {
  suite(`in ${place}`, () => {
    for (const sentence of BANNED)
      test(`"${sentence}" is found`, () => assert.equal(findingsIn(...inPlace(sentence)).length, 1));
    for (const sentence of ALLOWED)
      test(`"${sentence}" is allowed`, () => assert.deepEqual(findingsIn(...inPlace(sentence)), []));
  });
}

const ONE_WORD = /\b(?:\w+body|anyone|whoever|hears|heard|mended)\b/i;

for (const [place, inPlace] of Object.entries(NOT_PROSE)) {
  test(`nothing is found in ${place}`, () => {
    const sentences = place.includes('two comments') ? BANNED.filter((sentence) => !ONE_WORD.test(sentence)) : BANNED;
    for (const sentence of sentences) assert.deepEqual(findingsIn(...inPlace(sentence)), [], sentence);
  });
}

test('a finding names file, line, phrase and advice', () => {
  const text = 'const a = 1;\n/**\n * Returns what\n * is stored.\n */\n';
  assert.deepEqual(findingsIn('packages/a.ts', text), [
    {
      file: 'packages/a.ts',
      line: 3,
      phrase: 'what is',
      advice: 'replace the clause with "what" by the noun that it stands for',
    },
  ]);
});
