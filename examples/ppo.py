"""PPO on CartPole (gymnasium), with an annealed clip range and early stopping.

The last minibatch is smaller, the clip range is a Python number that changes, and the early stop is
an `if` on a tensor inside the compiled loss. The break comes first: without it, the loss is one
graph, and a recompile less. Return the divergence, and test it outside the compiled loss.
"""

import gymnasium
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, state):
        hidden = self.body(state)
        return self.actor(hidden).log_softmax(-1), self.critic(hidden).squeeze(-1)


torch.manual_seed(0)
policy = Policy()
act = torch.compile(policy, backend="eager")
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)


@torch.compile(backend="eager")
def loss_of(states, actions, old, advantages, clip):
    log_probabilities, values = policy(states)
    new = log_probabilities.gather(-1, actions[:, None]).squeeze(-1)
    ratio = (new - old).exp()
    if (old - new).mean() > 0.5:
        return None
    clipped = ratio.clamp(1 - clip, 1 + clip)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    return (values - advantages).square().mean() - gain.mean()


environment = gymnasium.make("CartPole-v1")
state, _ = environment.reset(seed=0)
for update in range(4):
    rows = []
    for _ in range(64):
        with torch.no_grad():
            log_probabilities, _ = act(torch.as_tensor(state)[None])
        action = int(torch.multinomial(log_probabilities.exp(), 1))
        state, reward, over, cut, _ = environment.step(action)
        rows.append((torch.as_tensor(state), action, log_probabilities[0, action], reward))
        if over or cut:
            state, _ = environment.reset()
    states = torch.stack([row[0] for row in rows])
    actions = torch.tensor([row[1] for row in rows])
    old = torch.stack([row[2] for row in rows])
    advantages = torch.tensor([float(row[3]) for row in rows])
    for index in torch.randperm(64).split(24):
        clip = 0.2 * (1 - update / 4)
        loss = loss_of(states[index], actions[index], old[index], advantages[index], clip)
        if loss is None:
            break
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
