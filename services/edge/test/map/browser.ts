/** Headless Chromium for tests of pages, without a GPU and without connections of its own. */
import { missing, TEST_TOOLS, whereIs } from '@ron/custody/testing';
import { eventually } from '@ron/testkit';
import { chromium, type Browser, type Page } from 'playwright-core';

/** Why tests of pages cannot run here; undefined if they can. For `skip` of a test. */
export const noBrowser = missing(TEST_TOOLS.chromium);

const FLAGS = [
  '--use-angle=swiftshader',
  '--enable-unsafe-swiftshader',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export async function openBrowser(): Promise<Browser> {
  return await chromium.launch({ executablePath: whereIs(['chromium'])!, args: FLAGS });
}

export interface ShownPage extends AsyncDisposable {
  readonly page: Page;
  /** URLs that the page and its workers requested. */
  readonly requests: string[];
  /** Errors of scripts and policy violations. */
  readonly problems: string[];
  /** The state of the status line once the map is drawn or has failed, and its text. */
  shown(): Promise<{ readonly state: string | null; readonly text: string; readonly verified_bytes: number }>;
  /** Red, green and blue at a point of the page, once it does not change any more: tiles fade in. */
  colourAt(points: readonly (readonly [x: number, y: number])[]): Promise<(readonly number[])[]>;
}

/** Longer than the time between two frames. */
const FRAME_MS = 100;

export const VIEW = { width: 512, height: 512 };

export async function showPage(browser: Browser, url: string): Promise<ShownPage> {
  const context = await browser.newContext({ viewport: VIEW });
  const requests: string[] = [];
  const problems: string[] = [];
  context.on('request', (request) => requests.push(request.url()));
  const page = await context.newPage();
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') problems.push(message.text());
  });
  // The first request begins to build the files of the page.
  await eventually('the page is built', async () => (await page.goto(url))?.status() !== 503);
  return {
    page,
    requests,
    problems,
    async shown() {
      const end = '#map[data-state=idle], #status[data-state=mismatch], #status[data-state=error]';
      await page.waitForSelector(end, { timeout: 60_000 });
      const status = page.locator('#status');
      const [state, text] = [await status.getAttribute('data-state'), await status.textContent()];
      const verified = await status.getAttribute('data-verified-bytes');
      return { state, text: text ?? '', verified_bytes: Number(verified ?? 0) };
    },
    colourAt: async (points) => await coloursIn(page, await stillOf(page), points),
    [Symbol.asyncDispose]: () => context.close(),
  };
}

/** Two equal screenshots in a row. */
async function stillOf(page: Page): Promise<Buffer> {
  let last = await page.screenshot();
  await eventually('the page does not change', async () => {
    const before = last;
    await new Promise((resolve) => setTimeout(resolve, FRAME_MS));
    last = await page.screenshot();
    return last.equals(before);
  });
  return last;
}

/** The browser decodes the picture, in a page without the policy of the map page. */
async function coloursIn(
  page: Page,
  png: Buffer,
  points: readonly (readonly [x: number, y: number])[],
): Promise<number[][]> {
  const reader = await page.context().newPage();
  const read = `(async () => {
    const picture = await createImageBitmap(await (await fetch('data:image/png;base64,${png.toString('base64')}')).blob());
    const canvas = new OffscreenCanvas(picture.width, picture.height).getContext('2d');
    canvas.drawImage(picture, 0, 0);
    return ${JSON.stringify(points)}.map(([x, y]) => [...canvas.getImageData(x, y, 1, 1).data.slice(0, 3)]);
  })()`;
  const colours = await reader.evaluate<number[][]>(read);
  await reader.close();
  return colours;
}
