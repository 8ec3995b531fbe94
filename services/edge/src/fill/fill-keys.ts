/** Checks of the configuration of fills that single keys cannot state. */
import { AddressPolicy } from '@ron/egress';
import { isRonError } from '@ron/kernel';
import { parseOrigin } from './live-path.ts';

interface FillKeys {
  readonly fill: {
    readonly allow: readonly string[];
    readonly networks: readonly string[];
    readonly types: readonly string[];
    readonly query: readonly string[];
  };
}

type Report = (key: 'fill.allow' | 'fill.networks' | 'fill.types' | 'fill.query', expects: string) => void;

const MEDIA_TYPE = /^[a-z0-9][a-z0-9.+-]*\/(?:\*|[a-z0-9][a-z0-9.+-]*)$/;
const PARAMETER = /^[A-Za-z0-9._~-]{1,64}$/;

export function checkFillKeys({ fill }: FillKeys, report: Report): void {
  for (const text of fill.allow) {
    if (parseOrigin(text) === undefined) report('fill.allow', `origins such as https://tiles.example.org, not ${text}`);
  }
  for (const text of fill.types) {
    if (!MEDIA_TYPE.test(text)) report('fill.types', `media types such as image/png or image/*, not ${text}`);
  }
  for (const text of fill.query) {
    if (!PARAMETER.test(text)) report('fill.query', `names of letters, digits and ._~-, not ${text}`);
  }
  try {
    void new AddressPolicy(fill.networks);
  } catch (error) {
    if (!isRonError(error)) throw error;
    report('fill.networks', error.message);
  }
}
