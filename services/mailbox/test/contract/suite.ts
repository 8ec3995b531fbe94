/** The contract of a mailbox over HTTP, for any store behind the routes. */
import { after, before, suite } from 'node:test';
import { receivingContract } from './receiving.ts';
import { sendingContract } from './sending.ts';
import { settlingContract } from './settling.ts';
import { Http, type ContractTarget, type StartTarget } from './target.ts';
import { topicsContract } from './topics.ts';

export function mailboxContract(name: string, start: StartTarget): void {
  suite(name, { concurrency: 8 }, () => {
    let target: ContractTarget;
    let http: Http;
    before(async () => {
      target = await start();
      http = await Http.open(target);
    });
    after(async () => {
      http[Symbol.dispose]();
      await target[Symbol.asyncDispose]();
    });
    const client = (): Http => http;
    sendingContract(client);
    receivingContract(client);
    settlingContract(client);
    topicsContract(client);
  });
}
