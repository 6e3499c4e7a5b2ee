#include <stdio.h>
#include <stdlib.h>

struct node {
    int value;
    struct node *next;
};

static struct node *push(struct node *head, int value)
{
    struct node *fresh = malloc(sizeof *fresh);
    if (fresh == NULL) {
        perror("malloc");
        exit(EXIT_FAILURE);
    }
    fresh->value = value;
    fresh->next = head;
    return fresh;
}

int main(void)
{
    struct node *head = NULL;
    for (int i = 0; i < 10; i++)
        head = push(head, i * i);
    for (struct node *n = head; n != NULL; n = n->next)
        printf("%d\n", n->value);
    return 0;
}
