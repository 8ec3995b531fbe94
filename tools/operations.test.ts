/** Checks the form of `docs/operations.md`, and that the source contains the messages that it quotes. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const ROOT = join(import.meta.dirname, '..');
const text = readFileSync(join(ROOT, 'docs/operations.md'), 'utf8');
const [index = '', body = ''] = text.split(/^## Start$/m);

interface Runbook {
  readonly name: string;
  readonly anchor: string;
  readonly parts: readonly string[];
  readonly symptom: string;
}

const runbooks = body
  .split(/^### /m)
  .slice(1)
  .map((section): Runbook => {
    const name = section.slice(0, section.indexOf('\n'));
    const parts = [...section.matchAll(/^- \*\*(\w+)\.\*\*/gm)].map(([, part]) => part!);
    return { name, anchor: anchorOf(name), parts, symptom: /^- \*\*Symptom\.\*\* (.*)$/m.exec(section)?.[1] ?? '' };
  });

function anchorOf(name: string): string {
  return name
    .toLowerCase()
    .replaceAll(/[^a-z0-9 -]/g, '')
    .replaceAll(' ', '-');
}

test('every runbook states symptom, effect and action', () => {
  assert.ok(runbooks.length > 30, `${runbooks.length} runbooks`);
  for (const { name, parts } of runbooks) assert.deepEqual(parts, ['Symptom', 'Effect', 'Action'], name);
});

test('the index links to headings that exist', () => {
  const headings = [...text.matchAll(/^#+ (.*)$/gm)].map(([, name]) => anchorOf(name!));
  for (const [, anchor] of text.matchAll(/\]\(#([^)]+)\)/g)) assert.ok(headings.includes(anchor!), `#${anchor}`);
});

test('every runbook can be found from the index', () => {
  const linked = new Set([...text.matchAll(/\]\(#([^)]+)\)/g)].map(([, anchor]) => anchor!));
  const missing = runbooks.filter(({ anchor }) => !linked.has(anchor)).map(({ name }) => name);
  assert.deepEqual(missing, []);
});

/** A comment may quote a message that no code prints. */
const COMMENT = /\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm;

/** The literal parts of a quoted message: `DIR: the directory is gone` has the placeholder DIR. */
function literalsOf(quote: string): string[] {
  return quote
    .split(/\b[A-Z]{2,}\b|\bN\b/)
    .map((part) => part.replaceAll(/^[\s:()/,.]+|[\s:()/,.]+$/g, ''))
    .filter((part) => part.length > 3);
}

test('the quoted messages, codes and metrics of all symptoms exist in the source', () => {
  const files = globSync('{packages,services,apps}/*/src/**/*.ts', { cwd: ROOT }).filter(
    (file) => !file.endsWith('.test.ts'),
  );
  const source = [...files, 'docs/metrics.md', 'docs/cli.md', 'docs/config.md']
    .map((file) => readFileSync(join(ROOT, file), 'utf8').replaceAll(COMMENT, ''))
    .join('\n');
  const symptoms = [
    ...runbooks.map(({ symptom }) => symptom),
    ...index.split('\n').filter((line) => line.startsWith('|')),
  ];
  const quotes = symptoms.flatMap((symptom) => [...symptom.matchAll(/`([^`]+)`/g)].map(([, quote]) => quote!));
  assert.ok(quotes.length > 50, `${quotes.length} quotes`);
  const unknown = quotes
    .map((quote) => quote.replace(/^ron /, '').replace(/\{(\w+)="\w+"\}$/, '{$1}'))
    .filter((quote) => literalsOf(quote).some((part) => !source.includes(part)));
  assert.deepEqual(unknown, [], 'docs/operations.md quotes texts that the source does not contain: update the page');
});
