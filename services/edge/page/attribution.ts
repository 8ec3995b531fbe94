/** The attribution of a pack is HTML of its maker: only text and links remain, so that it loads and runs nothing. */
import { escapeHtml } from '@ron/pages/html';

export function safeAttribution(html: unknown): string | undefined {
  if (typeof html !== 'string') return undefined;
  // Parsed without a window: no picture is loaded, and no script runs.
  const { body } = new DOMParser().parseFromString(html, 'text/html');
  return Array.from(body.childNodes, safeNode).join('');
}

function safeNode(node: Node): string {
  const text = escapeHtml(node.textContent ?? '');
  if (!(node instanceof HTMLAnchorElement) || node.protocol !== 'https:') return text;
  return `<a href="${escapeHtml(node.href)}" rel="noopener noreferrer" target="_blank">${text}</a>`;
}
