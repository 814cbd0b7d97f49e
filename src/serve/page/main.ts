/// <reference lib="dom" />
/** The page: conversations with the models that the server has. */
import { fetchFacts, type ModelFacts, ServerError, setKey, streamAnswer } from "./api.ts";
import {
  apiMessages,
  type Conversation,
  type Message,
  newConversation,
  readConversation,
  storeConversations,
  storedConversations,
  type ToolCall,
  withMessages,
} from "./conversation.ts";
import { button, type MessageActions, type MessageState, MessageView } from "./message_view.ts";
import { requestKeys, SettingsDialog } from "./settings.ts";

/** Returns the element of index.html with an id. */
function byId<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** The state of the page and what its controls do. */
class Page implements MessageActions {
  readonly #messages = byId("messages");
  readonly #list = byId("conversations");
  readonly #prompt = byId<HTMLTextAreaElement>("prompt");
  readonly #send = byId<HTMLButtonElement>("send");
  readonly #stop = byId<HTMLButtonElement>("stop");
  readonly #status = byId("status");
  readonly #settings = new SettingsDialog(byId<HTMLDialogElement>("settings"));
  readonly #models = byId<HTMLSelectElement>("models");
  readonly #keyDialog = byId<HTMLDialogElement>("key");
  #facts: ModelFacts | undefined;
  /** All conversations, the current one first. */
  #conversations: readonly Conversation[];
  /** Ends the answer in progress. */
  #answering: AbortController | undefined;

  constructor() {
    const stored = storedConversations();
    this.#conversations = stored.length > 0 ? stored : [newConversation()];
    this.#listen();
    this.#show();
    void this.#connect();
  }

  get #current(): Conversation {
    return this.#conversations[0]!;
  }

  edit(index: number, text: string): void {
    if (this.#answering !== undefined) return;
    this.#setMessages([...this.#current.messages.slice(0, index), { role: "user", content: text }]);
    void this.#answer();
  }

  retry(index: number): void {
    if (this.#answering !== undefined) return;
    this.#setMessages(this.#current.messages.slice(0, index));
    void this.#answer();
  }

  answerCall(call: ToolCall, result: string): void {
    if (this.#answering !== undefined) return;
    const { messages } = this.#current;
    const message: Message = { role: "tool", content: result, toolCallId: call.id };
    this.#setMessages([...messages, message]);
    // The model goes on when all of its calls have results.
    const calls = messages.findLast(({ role }) => role === "assistant")?.toolCalls ?? [];
    const answered = new Set(this.#current.messages.map(({ toolCallId }) => toolCallId));
    if (calls.every(({ id }) => answered.has(id))) void this.#answer();
  }

  #listen(): void {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    this.#prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#ask();
      }
    });
    this.#prompt.addEventListener("input", () => this.#fitPrompt());
    this.#stop.addEventListener("click", () => this.#answering?.abort());
    byId("new").addEventListener("click", () => this.#startNew());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#answering?.abort();
      if (event.altKey && event.key.toLowerCase() === "n") this.#startNew();
    });
    byId("open-settings").addEventListener("click", () => {
      this.#settings.open(this.#current.system, (system) => {
        this.#replace({ ...this.#current, system });
      });
    });
    byId("export").addEventListener("click", () => this.#export());
    const file = byId<HTMLInputElement>("file");
    byId("import").addEventListener("click", () => file.click());
    file.addEventListener("change", () => void this.#import(file));
    byId("theme").addEventListener("click", switchTheme);
    this.#models.addEventListener("change", () => {
      localStorage.setItem(MODEL_KEY, this.#models.value);
      this.#say(`Loading ${this.#models.value}`);
      void this.#connect();
    });
    byId("menu").addEventListener("click", () => this.#setMenu(!this.#isMenuOpen));
  }

  get #isMenuOpen(): boolean {
    return byId("sidebar").classList.contains("open");
  }

  #setMenu(isOpen: boolean): void {
    byId("sidebar").classList.toggle("open", isOpen);
    byId("menu").ariaExpanded = String(isOpen);
  }

  async #connect(): Promise<ModelFacts | undefined> {
    const chosen = localStorage.getItem(MODEL_KEY) ?? undefined;
    this.#facts = undefined;
    try {
      this.#facts = await fetchFacts(chosen);
      this.#showModels(this.#facts);
      document.title = `${this.#facts.name} · forge`;
      this.#say(`Context: ${this.#facts.contextLength} tokens`);
    } catch (error) {
      if (error instanceof ServerError && error.status === 401) {
        await this.#askForKey();
        return await this.#connect();
      }
      if (error instanceof ServerError && error.status === 404 && chosen !== undefined) {
        // The server no longer has the model that was chosen.
        localStorage.removeItem(MODEL_KEY);
        return await this.#connect();
      }
      const reason = error instanceof ServerError ? "" : "The server cannot be reached: ";
      this.#say(`${reason}${(error as Error).message}`, true);
    }
    return this.#facts;
  }

  /** Shows the name of the model, or a choice if the server has several. */
  #showModels({ name, models }: ModelFacts): void {
    byId("model").textContent = models.length > 1 ? "forge" : name;
    this.#models.hidden = models.length < 2;
    this.#models.replaceChildren(...models.map((model) => new Option(model)));
    this.#models.value = name;
  }

  #askForKey(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const input = this.#keyDialog.querySelector("input")!;
    this.#keyDialog.addEventListener("close", () => {
      setKey(input.value);
      resolve();
    }, { once: true });
    this.#keyDialog.showModal();
    return promise;
  }

  #startNew(): void {
    if (this.#answering !== undefined) return;
    if (this.#current.messages.length > 0) {
      const begun = this.#conversations.filter(({ messages }) => messages.length > 0);
      this.#conversations = [newConversation(this.#current.system), ...begun];
    }
    this.#show();
    this.#prompt.focus();
  }

  #select(conversation: Conversation): void {
    if (this.#answering !== undefined) return;
    const others = this.#conversations.filter(({ id }) => id !== conversation.id);
    this.#conversations = [conversation, ...others];
    this.#show();
  }

  #remove(conversation: Conversation): void {
    if (this.#answering !== undefined) return;
    const others = this.#conversations.filter(({ id }) => id !== conversation.id);
    this.#conversations = others.length > 0 ? others : [newConversation()];
    storeConversations(this.#conversations);
    this.#show();
  }

  #replace(conversation: Conversation): void {
    this.#conversations = [conversation, ...this.#conversations.slice(1)];
    storeConversations(this.#conversations);
  }

  #setMessages(messages: readonly Message[]): void {
    this.#replace(withMessages(this.#current, messages));
    this.#show();
  }

  #ask(): void {
    const text = this.#prompt.value;
    if (text.trim() === "" || this.#answering !== undefined) return;
    this.#prompt.value = "";
    this.#fitPrompt();
    this.#setMessages([...this.#current.messages, { role: "user", content: text }]);
    void this.#answer();
  }

  /** Asks the model for the next message and shows it as it grows. */
  async #answer(): Promise<void> {
    const facts = this.#facts ?? await this.#connect();
    if (facts === undefined) return;
    const earlier = this.#current.messages;
    this.#answering = new AbortController();
    this.#setBusy(true);
    let message: Message = { role: "assistant", content: "" };
    const view = this.#addView(message, earlier.length, { isGrowing: true, isLast: true });
    let frame = 0;
    const draw = () => {
      frame = 0;
      this.#follow(() => view.update(message, { isGrowing: true, isLast: true }));
    };
    try {
      const body = {
        ...requestKeys(this.#settings.settings),
        model: facts.name,
        messages: apiMessages(this.#current),
      };
      for await (message of streamAnswer(body, facts, this.#answering.signal)) {
        // The screen shows at most one state per frame.
        if (frame === 0) frame = requestAnimationFrame(draw);
      }
      this.#say(`Context: ${usedTokens(message)} of ${facts.contextLength} tokens`);
    } catch (error) {
      const isStopped = this.#answering.signal.aborted;
      const failure = isStopped ? "You stopped the answer." : (error as Error).message;
      message = { ...message, failure };
    } finally {
      cancelAnimationFrame(frame);
      this.#answering = undefined;
      this.#setBusy(false);
      this.#setMessages([...earlier, message]);
    }
  }

  #setBusy(isBusy: boolean): void {
    this.#send.hidden = isBusy;
    this.#stop.hidden = !isBusy;
  }

  #show(): void {
    this.#messages.replaceChildren();
    const { messages } = this.#current;
    messages.forEach((message, index) => {
      this.#addView(message, index, { isLast: index === messages.length - 1 });
    });
    this.#messages.scrollTop = this.#messages.scrollHeight;
    this.#list.replaceChildren(...this.#conversations.map((conversation) => {
      const item = document.createElement("li");
      const title = button(conversation.title, () => this.#select(conversation));
      title.className = "title";
      if (conversation === this.#current) title.setAttribute("aria-current", "true");
      const remove = button("✕", () => this.#remove(conversation));
      remove.ariaLabel = `Delete ${conversation.title}`;
      item.append(title, remove);
      return item;
    }));
    this.#setMenu(false);
  }

  #addView(message: Message, index: number, state: MessageState): MessageView {
    const view = new MessageView(message, index, this, state);
    this.#messages.append(view.element);
    return view;
  }

  /** Makes a change and keeps the end in sight if it was before. */
  #follow(change: () => void): void {
    const { scrollTop, clientHeight, scrollHeight } = this.#messages;
    const isAtEnd = scrollTop + clientHeight >= scrollHeight - 40;
    change();
    if (isAtEnd) this.#messages.scrollTop = this.#messages.scrollHeight;
  }

  #fitPrompt(): void {
    this.#prompt.style.height = "auto";
    this.#prompt.style.height = `${this.#prompt.scrollHeight + 2}px`;
  }

  #export(): void {
    const text = `${JSON.stringify(apiMessages(this.#current), null, 2)}\n`;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = `${
      this.#current.title.replace(/[^\p{L}\p{N} _-]/gu, "").trim() || "chat"
    }.json`;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  async #import(input: HTMLInputElement): Promise<void> {
    const [file] = input.files ?? [];
    input.value = "";
    if (file === undefined || this.#answering !== undefined) return;
    try {
      const conversation = readConversation(await file.text());
      const begun = this.#conversations.filter(({ messages }) => messages.length > 0);
      this.#conversations = [conversation, ...begun];
      storeConversations(this.#conversations);
      this.#show();
    } catch (error) {
      this.#say(`${file.name}: ${(error as Error).message}`, true);
    }
  }

  #say(text: string, isError = false): void {
    this.#status.textContent = text;
    this.#status.classList.toggle("error", isError);
  }
}

function usedTokens({ stats }: Message): number {
  return stats === undefined ? 0 : stats.promptTokens + stats.answerTokens;
}

const MODEL_KEY = "forge.model";
const THEME_KEY = "forge.theme";

/** Changes from the theme on the screen to the other one. */
function switchTheme(): void {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  setTheme((document.documentElement.dataset.theme ?? system) === "dark" ? "light" : "dark");
}

function setTheme(theme: string): void {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(THEME_KEY, theme);
}

const theme = localStorage.getItem(THEME_KEY);
if (theme !== null) setTheme(theme);
new Page();
